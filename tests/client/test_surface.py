"""The surface of the SDK: the calls that its kinds share, and what an import of it loads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Final, Unpack, get_args, get_origin, get_type_hints

import pytest

from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker
from delaylog.client import (
    AsyncClient,
    AsyncPlainClient,
    AsyncQueueClient,
    Client,
    PlainClient,
    QueueClient,
)
from tests.programs import run_program

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


def parameters(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
    """The public methods with their parameters."""
    found = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            taken = inspect.signature(method).parameters.values()
            found[name] = [(each.name, each.kind, each.default) for each in taken]
    return found


def test_the_plain_clients_have_the_same_calls() -> None:
    assert parameters(AsyncPlainClient) == parameters(PlainClient)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_call_says_what_it_does(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        assert name.startswith("_") or method.__doc__, name


def test_the_calls_about_messages_and_topics_are_the_same() -> None:
    """Sends differ on purpose, and so do the ways to run handlers."""
    here, there = parameters(Client), parameters(AsyncClient)
    names = {"receive", "subscribe", "peek", "ack", "nack", "reject", "release", "extend", "begin"}
    names |= {"settle_ids", "send_columns", "broker", "transaction", "close"}
    names |= {"get", "cancel", "reschedule", "replay", "browse", "dead"}
    names |= {"topics", "get_topic", "put_topic", "drop_topic", "stats", "forecast", "purge"}
    names |= {"pause", "resume", "groups", "put_group", "drop_group"}
    assert {name: here[name] for name in names} == {name: there[name] for name in names}


LOADED = """
{}
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("delaylog.") or "site-packages" in (getattr(module, "__file__", "") or ""):
        print(name)
"""


def loaded_by(statement: str) -> set[str]:
    """What a new process has after an import: modules of ours, and packages from elsewhere."""
    ran = run_program(sys.executable, "-P", "-c", LOADED.format(statement), check=True)
    names = [name for name in ran.stdout.split() if not name.startswith("_")]
    return {name if name.startswith("delaylog.") else name.partition(".")[0] for name in names}


def test_the_client_brings_nothing_of_the_server_and_no_http_library() -> None:
    """Of other packages only msgpack; aiohttp is loaded by the first call of an AsyncClient."""
    ours = ("delaylog.client", "delaylog.contract", "delaylog.secret_files")
    found = loaded_by("from delaylog.client import AsyncClient, Client")
    assert {name for name in found if not name.startswith(ours)} == {"msgpack"}


def test_to_import_delaylog_loads_nothing_else() -> None:
    assert loaded_by("import delaylog") == set()
