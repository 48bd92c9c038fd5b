"""What the Redis endpoint adds: a listener for Redis clients, if the configuration names one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delaylog.broker.process.leaves import Leaf
from delaylog.extras import REDIS

if TYPE_CHECKING:
    from delaylog.broker.process.served import Endpoint, Served


def _endpoint(served: Served) -> Endpoint | None:
    if served.config.resp is None:
        # A broker without Redis clients starts faster without importing their commands.
        return None
    from delaylog.broker.resp.starting import make_endpoint

    return make_endpoint(served, served.config.resp)


LEAF: Final = Leaf(REDIS, folders=("keyspace",), endpoint=_endpoint)
