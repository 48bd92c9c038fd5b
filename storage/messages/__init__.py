"""Messages as columns: fields, members, batches, records and rows.

Imports: columns, ids, and the payloads of the log.
Begin with `batch`.
"""
