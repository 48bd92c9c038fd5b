"""What goes over the wire: bodies, answers, failures and retries. No I/O.

Imports: storage.messages.batch, contract.calls.
Begin with `bulk`.
"""
