"""What goes over the wire: bodies, answers, failures and repeats. No I/O.

Imports: storage.messages.batch, storage.calls.
Begin with `bulk`.
"""
