"""Threads and asyncio have the same calls, and each call says what it does."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from delaylog.client import AsyncClient, AsyncPlainClient, Client, PlainClient
from tests.programs import run_program


def calls(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
    """The public methods with their parameters."""
    found = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            parameters = inspect.signature(method).parameters.values()
            found[name] = [(each.name, each.kind, each.default) for each in parameters]
    return found


def test_the_plain_clients_have_the_same_calls() -> None:
    assert calls(AsyncPlainClient) == calls(PlainClient)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_call_says_what_it_does(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        assert name.startswith("_") or method.__doc__, name


def test_the_calls_about_messages_and_topics_are_the_same() -> None:
    """Sends differ on purpose, and so do the ways to run handlers."""
    here, there = calls(Client), calls(AsyncClient)
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
