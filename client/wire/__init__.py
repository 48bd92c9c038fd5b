"""What goes over the wire: bodies, answers, failures and retries. No I/O.

Imports: contract, keywords, errors, calls.call.
Begin with `bulk`.
"""
