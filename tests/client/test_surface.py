"""Both clients are what `queues` and workers are written against, call by call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Unpack, get_args, get_origin, get_type_hints

import pytest

from delaylog.client import AsyncClient, Client
from delaylog.client.surface import AsyncQueueClient, QueueClient

ABSENT: Final = ("keyword", "absent")
"""How a keyword of a TypedDict is given."""


@pytest.mark.parametrize(
    ("kind", "surface"), [(Client, QueueClient), (AsyncClient, AsyncQueueClient)]
)
def test_a_client_takes_every_call_of_its_surface(kind: type, surface: type) -> None:
    """Each parameter by its name and in its way, and a default wherever the surface has one."""
    names = [name for name, _ in inspect.getmembers(surface, inspect.isfunction) if name[0] != "_"]
    assert len(names) > 15
    for name in names:
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
