"""Messages as columns: fields, members, batches, records and rows.

Imports: columns.
Begin with `batch`.
"""
