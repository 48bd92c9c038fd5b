"""`delaylog tail`: a line for each message that is handed out, without leasing it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, count
from delaylog.broker.cli.connection import ANSWER_S, transport_of
from delaylog.broker.cli.failures import DONE
from delaylog.broker.cli.output import emit
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.values import id_text, plain_text, time_text
from delaylog.broker.cli.watching.scrapes import seconds_text
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import Places, request
from delaylog.client.errors import AnswerLost, NotReached, NotReady

WAIT_MS: Final = 10_000
RETRY_S: Final = 1.0


def tail_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog tail`."""
    add_broker(parser)
    parser.add_argument(
        "--count", type=count, metavar="N", help="end after this number of messages"
    )
    add_examples(parser, "tail reminders", "tail reminders --json --count 100")


async def tail_command(args: argparse.Namespace) -> int:
    """`delaylog tail`."""
    async with transport_of(args, timeout_s=ANSWER_S) as transport:
        await _tail(args, transport)
    return DONE


async def _tail(args: argparse.Namespace, transport: AsyncTransport) -> None:
    after: int | None = None
    left, lost = args.count, False
    while left is None or left > 0:
        # The first call only begins: a message that is handed out from then on is not missed.
        wait_ms = 0 if after is None else WAIT_MS
        look = request(
            "getTail",
            Places(args.namespace),
            args.topic,
            limit_s=ANSWER_S + wait_ms / 1000,
            after=after,
            wait_ms=wait_ms,
        )
        try:
            answer = await transport.carry(look)
        except (AnswerLost, NotReached, NotReady) as error:
            # A restart, or another leader, ends no tail. The first call tells of a wrong address.
            if after is None:
                raise
            if not lost:
                print(f"{error}; trying again", file=sys.stderr)
            lost = True
            await asyncio.sleep(RETRY_S)
            continue
        lost = False
        if after is not None and not answer["complete"]:
            print("some hand-outs were missed", file=sys.stderr)
        after = answer["next"]
        found = answer["messages"] if left is None else answer["messages"][:left]
        for each in found:
            emit(each) if args.json else print(_line(each), flush=True)
        left = None if left is None else left - len(found)


def _line(each: dict[str, Any]) -> str:
    late_s = (each["handed_out_ms"] - each["deliver_at_ms"]) / 1000
    words = [
        time_text(each["handed_out_ms"]),
        id_text(each["id"]),
        f"late {seconds_text(late_s)}",
        f"attempt {each['attempts']}",
        f"group {each['group']}",
        *([f"consumer {each['consumer']}"] if each["consumer"] else []),
    ]
    return plain_text("  ".join(words))
