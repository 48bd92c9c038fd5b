"""Sorted runs of keys and refs: the indexes of ids and of texts, recent entries in memory.

Imports: files, columns, messages.
Begin with `run_store`, then `id_index` and `text_index`.
"""
