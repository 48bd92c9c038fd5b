"""States of rows: a column of sealed entries for each group and hour.

Imports: files.
Begin with `state_column`.
"""
