"""Send: check a batch, merge its ids, check quotas, and append one SEND frame with the decision.

Imports: apply, lookup, topics, transactions, storage.
Begin with `sends`.
"""
