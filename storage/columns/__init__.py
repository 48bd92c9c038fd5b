"""Arithmetic on columns of numbers and bytes.

Imports: the layout of records and the block type of batches.
Begin with `questions`.
"""
