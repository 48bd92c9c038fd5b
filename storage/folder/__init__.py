"""Data folders as tools, backups and starts read them: the newest checkpoint and what it names.

Imports: files, log, hours, columns.
Begin with `checkpoint`.
"""
