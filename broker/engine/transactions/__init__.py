"""Transactions: parts are staged in the log, one frame decides, a publisher brings the rows in.

`parts` and `table` are what frames say; `deciding` judges calls and appends frames; `staged` reads
parts back from the log; `publishing` appends PUBLISH frames until a decided transaction is done.
"""

from delaylog.broker.engine.transactions.open_transaction import Unpublished
from delaylog.broker.engine.transactions.table import TransactionTable

__all__ = ["TransactionTable", "Unpublished"]
