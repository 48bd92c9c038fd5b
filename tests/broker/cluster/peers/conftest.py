"""Every test with sockets runs on both kinds of loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop

from tests.broker.cluster.peers.rig import run

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def go(request: pytest.FixtureRequest) -> Run:
    """Runs one coroutine."""
    return partial(run, loop=request.param)
