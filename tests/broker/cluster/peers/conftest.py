"""Every test with sockets runs on both kinds of loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.broker.cluster.peers.rig import Rig

MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def make_loop(request: pytest.FixtureRequest) -> MakeLoop:
    """The loop of the test."""
    make: MakeLoop = request.param
    return make


@pytest.fixture
def rig(make_loop: MakeLoop) -> Rig:
    """Two addresses, and what is started on them."""
    return Rig()
