"""Every call of the native API: path, method, handler, and what it takes and answers.

The server routes by this table and `/openapi.json` is made from it, so that there is no call
without a description and none described that is not there.
"""

from delaylog.broker.calls.operations.of_nodes import CLUSTER_CALLS, NODE_CALLS
from delaylog.broker.calls.operations.operation import Handler, Operation, Takes
from delaylog.broker.calls.operations.table import ALL, IN_NAMESPACES, READS, TAKES_QUERY, by_tail

__all__ = [
    "ALL",
    "CLUSTER_CALLS",
    "IN_NAMESPACES",
    "NODE_CALLS",
    "READS",
    "TAKES_QUERY",
    "Handler",
    "Operation",
    "Takes",
    "by_tail",
]
