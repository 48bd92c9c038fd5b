"""`delaylog doctor broker`: asks a running broker for its metrics and clock, and reports problems.

It changes nothing. It needs the right `metrics`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from delaylog import __version__
from delaylog.broker.cli.connection import route_of, waiting
from delaylog.broker.cli.doctor.broker_checks import Examined, examine
from delaylog.broker.cli.doctor.findings import print_report
from delaylog.broker.cli.watching.scrapes import Change, Scrape, parse_scrape
from delaylog.broker.cli.watching.top import METRICS
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import json_call
from delaylog.client.calls.topics import clock
from delaylog.client.errors import ApiError

WATCHED_S: Final = 2.0
"""How long it looks at what the broker does."""


async def broker_command(args: argparse.Namespace) -> int:
    """`delaylog doctor broker`: 0, or 1 if a check fails. A warning is no failure."""
    route, options = route_of(args)
    transport = AsyncTransport(route, **options)
    with waiting(args):
        try:
            examined = await _look(transport)
        finally:
            await transport.close()
    return print_report(examine(examined), as_json=args.json)


async def _look(transport: AsyncTransport) -> Examined:
    unready = ""
    try:
        await transport.carry(json_call("GET", "/readyz"))
    except ApiError as error:
        unready = error.detail
    asked_ms = time.time() * 1000
    told = await transport.carry(clock())
    answered_ms = time.time() * 1000
    first = await _scrape(transport)
    await asyncio.sleep(WATCHED_S)
    return Examined(
        Change(first, await _scrape(transport)),
        unready=unready,
        # By the middle of the call, which is wrong by half of its time at most.
        clock_ahead_ms=told["wall_ms"] - (asked_ms + answered_ms) / 2,
        clock_error_ms=(answered_ms - asked_ms) / 2,
        own_release=__version__,
    )


async def _scrape(transport: AsyncTransport) -> Scrape:
    return parse_scrape(await transport.carry(METRICS), time.monotonic())
