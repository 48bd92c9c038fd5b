"""Threads and asyncio have the same calls, and each call says what it does."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

from delaylog.client import AsyncClient, AsyncPlainClient, Client, PlainClient


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
    names = {"receive", "subscribe", "peek", "ack", "nack", "reject", "release", "extend"}
    names |= {"settle_ids", "send_columns", "broker", "transaction", "close"}
    names |= {"get", "cancel", "reschedule", "replay", "browse", "dead"}
    names |= {"topics", "get_topic", "put_topic", "drop_topic", "stats", "forecast", "purge"}
    names |= {"pause", "resume", "groups", "put_group", "drop_group"}
    assert {name: here[name] for name in names} == {name: there[name] for name in names}


def test_the_client_brings_nothing_of_the_server() -> None:
    program = (
        "import sys, delaylog.client; "
        "sys.exit(any(name.startswith(('delaylog.broker', 'delaylog.replication', "
        "'delaylog.wheel')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
