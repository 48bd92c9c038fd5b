"""Arithmetic on columns of numbers and bytes.

Imports: nothing of ours.
Begin with `questions`.
"""
