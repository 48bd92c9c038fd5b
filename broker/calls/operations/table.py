"""All calls in one table, and what the rest of the server asks of it."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls.operations.of_claims import CLAIM_CALLS
from delaylog.broker.calls.operations.of_nodes import CLUSTER_CALLS, NODE_CALLS
from delaylog.broker.calls.operations.of_topics import GROUP_CALLS, TOPIC_CALLS
from delaylog.broker.calls.operations.operation import Handler

IN_NAMESPACES: Final = (*TOPIC_CALLS, *GROUP_CALLS, *CLAIM_CALLS)
"""Calls of a topic in any namespace."""
ALL: Final = (*IN_NAMESPACES, *NODE_CALLS, *CLUSTER_CALLS)
READS: Final = frozenset(
    operation.handler for operation in (*IN_NAMESPACES, *NODE_CALLS) if operation.method == "GET"
)
"""Handlers that only look, which any node may answer."""

TAKES_QUERY: Final = frozenset(operation.handler for operation in ALL if operation.query)
"""Handlers that read the query, and refuse what they do not know of it."""


def by_tail(prefix: str) -> dict[str, dict[str, Handler]]:
    """Handlers by what stands behind a prefix, then by method."""
    table: dict[str, dict[str, Handler]] = {}
    for operation in ALL:
        head, _, tail = operation.path.partition(prefix)
        if head == "" and "{" not in tail and (tail == "" or tail.startswith("/")):
            table.setdefault(tail.removeprefix("/"), {})[operation.method] = operation.handler
    return table
