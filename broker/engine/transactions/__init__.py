"""Transactions: parts are staged in the log, a COMMIT frame decides, a publisher creates the rows.

Imports: apply, send, topics, storage. Begin with `commands`, which checks calls and appends frames.
`table` is the state, and reads staged parts back from the log; `publisher` appends PUBLISH frames
until a committed transaction is done.
"""

from delaylog.broker.engine.transactions.table import TransactionTable, Unpublished

__all__ = ["TransactionTable", "Unpublished"]
