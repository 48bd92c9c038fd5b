"""Why late: what kept messages from being handed out, and what bounds a topic now.

Imports: topics, storage. `views` adds it to life lines.
Begin with `timeline`.
"""
