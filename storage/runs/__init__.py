"""Sorted runs of keys and refs: the files of the indexes of ids and of texts, and their merging.

Imports: files, columns.
Begin with `run_store`.
"""
