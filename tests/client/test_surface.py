"""Both clients are what `queues` and workers are written against, call by call."""

from __future__ import annotations

import inspect

import pytest

from delaylog.client import AsyncClient, Client
from delaylog.client.surface import AsyncQueueClient, QueueClient


@pytest.mark.parametrize(
    ("kind", "surface"), [(Client, QueueClient), (AsyncClient, AsyncQueueClient)]
)
def test_a_client_takes_every_call_of_its_surface(kind: type, surface: type) -> None:
    """Each parameter by its name and in its way, and a default wherever the surface has one."""
    names = [name for name, _ in inspect.getmembers(surface, inspect.isfunction) if name[0] != "_"]
    assert len(names) > 15
    for name in names:
        wanted = inspect.signature(getattr(surface, name)).parameters
        found = inspect.signature(getattr(kind, name)).parameters
        for parameter in wanted.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            assert parameter.name in found, (name, parameter.name)
            assert found[parameter.name].kind is parameter.kind, (name, parameter.name)
            assert found[parameter.name].default == parameter.default, (name, parameter.name)
