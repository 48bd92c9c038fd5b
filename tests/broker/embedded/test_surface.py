"""An embedded broker has every call of the clients, but what only several brokers have."""

from __future__ import annotations

import inspect

import pytest

from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker
from delaylog.client import AsyncClient, Client

OF_CONNECTIONS = {"shards", "mismatched"}
OF_SHARDS = {"shard", "within_s"}


@pytest.mark.parametrize(
    ("kind", "client"), [(EmbeddedBroker, Client), (AsyncEmbeddedBroker, AsyncClient)]
)
def test_it_takes_the_calls_of_a_client(kind: type, client: type) -> None:
    names = {name for name, _ in inspect.getmembers(client) if name[0] != "_"} - OF_CONNECTIONS
    assert len(names) > 30
    for name in names:
        wanted = inspect.signature(getattr(client, name)).parameters
        found = inspect.signature(getattr(kind, name)).parameters
        others = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values())
        for parameter in wanted.values():
            if parameter.name in OF_SHARDS:
                assert parameter.name not in found
            elif parameter.name not in found:
                assert others, (name, parameter.name)
            else:
                same = found[parameter.name]
                assert (same.kind, same.default) == (parameter.kind, parameter.default), name
