"""The index of keys and tags: recent entries in memory, all others in sorted runs on disk.

Imports: files, ids (runs), messages.
Begin with `text_index`.
"""
