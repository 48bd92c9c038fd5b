"""`delaylog report`: one HTML file about how a broker kept its promise.

Imports: cli, and the file of minutes of `broker/host/metrics`. `analysis` computes, `svg` draws,
`html_file` has the form of the file, `page` writes; all are pure. Begin with `command`.
"""
