"""The dashboard: a page that calls the public API, and nothing else.

`page/` has the files that browsers load: our modules as they are written, and in `page/lib` those
of others. `files` answers requests for them. Read `page/app.js` first.
"""
