"""`QueueClient` and `AsyncQueueClient` have every call that clients and embedded brokers share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Unpack, get_args, get_origin, get_type_hints

import pytest

from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker
from delaylog.client import AsyncClient, AsyncQueueClient, Client, QueueClient

ABSENT: Final = ("keyword", "absent")
"""How a keyword of a TypedDict is given."""


KINDS: Final = (
    (Client, EmbeddedBroker, QueueClient),
    (AsyncClient, AsyncEmbeddedBroker, AsyncQueueClient),
)


def calls(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


@pytest.mark.parametrize(("client", "embedded", "surface"), KINDS)
def test_a_surface_has_every_call_that_both_brokers_have(
    client: type, embedded: type, surface: type
) -> None:
    assert calls(surface) == calls(client) & calls(embedded)
    assert issubclass(client, surface)
    assert issubclass(embedded, surface)


@pytest.mark.parametrize(
    ("kind", "surface"),
    [(kind, surface) for client, embedded, surface in KINDS for kind in (client, embedded)],
)
def test_each_takes_every_call_of_its_surface(kind: type, surface: type) -> None:
    """Each parameter by its name and in its way, and a default wherever the surface has one."""
    assert len(calls(surface)) > 40
    for name in calls(surface):
        wanted, found = takes(getattr(surface, name)), takes(getattr(kind, name))
        for parameter, way in wanted.items():
            alike = [way]
            if way[0] is inspect.Parameter.KEYWORD_ONLY and way[1] is not inspect.Parameter.empty:
                # A keyword of a TypedDict may be left out as well.
                alike.append(ABSENT)
            assert found.get(parameter) in alike, (name, parameter)


def takes(method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The parameters: how each is given, and its default; keywords of a TypedDict by name."""
    ways: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        said = get_type_hints(method).get(name)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and get_origin(said) is Unpack:
            ways |= dict.fromkeys(get_args(said)[0].__annotations__, ABSENT)
        elif name not in ("self", "places"):
            ways[name] = (parameter.kind, parameter.default)
    return ways
