"""Transactions: parts are staged in the log, a COMMIT frame decides, a publisher creates the rows.

Imports: apply, send, topics, storage. Begin with `commands`, which checks calls and appends frames.
`table` and `parts` are the state; `winners` compares row counts at a commit; `staged` reads parts
back from the log; `publishing` appends PUBLISH frames until a committed transaction is done.
"""

from delaylog.broker.engine.transactions.open_transaction import Unpublished
from delaylog.broker.engine.transactions.table import TransactionTable

__all__ = ["TransactionTable", "Unpublished"]
