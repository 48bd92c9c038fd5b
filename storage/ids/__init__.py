"""The ids that clients chose: recent ones in memory, all others in sorted runs on disk.

Imports: files, columns.
Begin with `id_index`.
"""
