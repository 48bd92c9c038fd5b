"""`delaylog doctor broker`: asks a running broker for its metrics and clock, and reports problems.

It changes nothing. It needs the right `metrics`. With `--folder` it also looks at this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from delaylog import __version__
from delaylog.broker.cli.connection import ANSWER_S, route_of, waiting
from delaylog.broker.cli.doctor.broker_checks import Examined, examine
from delaylog.broker.cli.doctor.findings import Finding, Mark, print_report
from delaylog.broker.cli.doctor.machine_checks import examine_machine, look
from delaylog.broker.cli.failing import UsageError
from delaylog.broker.cli.watching.scrapes import Change
from delaylog.broker.cli.watching.top import scrape
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import json_call
from delaylog.client.errors import AnswerLost, ApiError, NotReached
from delaylog.contract.calls.broker import CLOCK

_ADVICE: Final = "see that its process runs and is not stopped; on its machine, use --folder"


async def broker_command(args: argparse.Namespace) -> int:
    """`delaylog doctor broker`: 0, or 1 if a check fails. A warning is no failure."""
    route, options = route_of(args)
    # This node is examined, as it is: no retries until it is ready, and no other node instead.
    options["timeout_s"] = ANSWER_S
    transport = AsyncTransport(route, failover_s=0.0, **options)
    with waiting(args):
        try:
            report = examine(await _look(transport, args.watch / 1000))
        except (NotReached, AnswerLost) as error:
            # The machine of the broker may be the reason, so the machine is examined too.
            report = [Finding("ready", Mark.FAIL, f"no usable answer: {error}", _ADVICE)]
        finally:
            await transport.close()
    if args.folder is not None:
        try:
            report += examine_machine(look(args.folder))
        except OSError as error:
            raise UsageError(f"--folder {args.folder} cannot be measured: {error}") from None
    return print_report(report, as_json=args.json)


async def _look(transport: AsyncTransport, seconds: float) -> Examined:
    unready = ""
    try:
        await transport.carry(json_call("GET", "/readyz"))
    except ApiError as error:
        unready = error.detail
    asked_ms = time.time() * 1000
    answer = await transport.carry(json_call("GET", f"{CLOCK}?read=local"))
    answered_ms = time.time() * 1000
    first = await scrape(transport)
    await asyncio.sleep(seconds)
    return Examined(
        Change(first, await scrape(transport)),
        unready=unready,
        # By the middle of the call, which is wrong by half of its time at most.
        clock_ahead_ms=answer["wall_ms"] - (asked_ms + answered_ms) / 2,
        clock_error_ms=(answered_ms - asked_ms) / 2,
        own_release=__version__,
    )
