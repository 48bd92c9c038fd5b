"""An embedded broker has every call of the clients, as one shard, but what connections have."""

from __future__ import annotations

import inspect

import pytest

from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker
from delaylog.client import AsyncClient, Client
from tests.client.test_surface import takes

OF_CONNECTIONS = {"from_env", "shards", "mismatched", "timeout_s"}
OF_CLOSING = {"within"}
"""How long an end waits for a network that there is not."""


@pytest.mark.parametrize(
    ("kind", "client"), [(EmbeddedBroker, Client), (AsyncEmbeddedBroker, AsyncClient)]
)
def test_it_takes_the_calls_of_a_client(kind: type, client: type) -> None:
    names = {name for name, _ in inspect.getmembers(client) if name[0] != "_"} - OF_CONNECTIONS
    assert len(names) > 30
    for name in names:
        wanted, found = takes(getattr(client, name)), takes(getattr(kind, name))
        others = any(way == inspect.Parameter.VAR_KEYWORD for way, _ in found.values())
        for parameter, (way, default) in wanted.items():
            if parameter in OF_CLOSING:
                assert parameter not in found
            elif parameter not in found:
                assert others, (name, parameter)
            elif default != "absent":
                assert found[parameter] == (way, default), (name, parameter)
