"""`delaylog top`: the topics of a running broker, live.

It reads `/metrics` once an interval, so it costs a broker what a scrape does, and needs the right
`metrics`. The detail of a topic also needs the right `read` on it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Self

from delaylog.broker.cli.arguments import add_broker, count, span
from delaylog.broker.cli.connection import ANSWER_S, call, transport_of
from delaylog.broker.cli.failures import DONE
from delaylog.broker.cli.output import emit, print_table
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.watching.scrapes import (
    COLUMNS,
    Change,
    Scrape,
    cells,
    parse_scrape,
    rows_of,
)
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import READ_FORM, Call, Form
from delaylog.client.errors import ClientError

# Keys of a terminal, one by one and without echo, for a screen that goes on meanwhile.

KEY_BYTES_MAX: Final = 16
"""Bytes of one read: a key that sends a sequence, such as an arrow, arrives whole."""


class Keyboard:
    """A context in which standard input gives keys; without a terminal there, none."""

    def __init__(self) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            asyncio.get_running_loop().add_reader(sys.stdin, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            import termios

            asyncio.get_running_loop().remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        pressed = os.read(sys.stdin.fileno(), KEY_BYTES_MAX).decode("utf-8", "replace")
        # Keys that were pressed while the screen was drawn arrive together.
        keys = [pressed] if pressed.startswith("\x1b") else list(pressed)
        # The end of the input ends the screen, as q does.
        for key in keys or ["q"]:
            self._keys.put_nowait(key)

    async def key(self, seconds: float) -> str | None:
        """The next key, or None if none is pressed within this time."""
        try:
            return await asyncio.wait_for(self._keys.get(), seconds)
        except TimeoutError:
            return None


TEXT_FORM: Final = Form(READ_FORM.content_type, "text/plain")


def _metrics(wire: bytes) -> str:
    text = wire.decode()
    if "\ndelaylog_info{" not in text:
        raise ValueError("it has no metrics of delaylog; is the address that of a broker?")
    return text


# While a scrape waits for its answer, the screen takes no keys.
_METRICS: Final = Call(
    "GET", "/metrics", None, TEXT_FORM, _metrics, repeatable=True, limit_s=ANSWER_S
)


def top_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog top`."""
    add_broker(parser, topic=None)
    parser.add_argument(
        "--every", type=span, default=1_000, metavar="TIME", help="interval (default 1s)"
    )
    parser.add_argument(
        "--count",
        type=count,
        metavar="N",
        help="end after this number of intervals (default: 1 if the output is no terminal)",
    )
    parser.add_argument(
        "--sort",
        choices=tuple(COLUMNS),
        default="out_per_s",
        metavar="COLUMN",
        help=f"one of {', '.join(COLUMNS)}",
    )
    add_examples(parser, "top", "top --sort oldest_s --every 5s", "top --json --count 60")


async def top_command(args: argparse.Namespace) -> int:
    """`delaylog top`."""
    async with transport_of(args) as transport:
        before = await scrape(transport)
        if sys.stdout.isatty() and not args.json:
            await _live(args, transport, before)
        else:
            await _print(args, transport, before)
    return DONE


async def scrape(transport: AsyncTransport) -> Scrape:
    """The metrics of a broker as they are now."""
    return parse_scrape(await transport.carry(_METRICS), time.monotonic())


async def _print(args: argparse.Namespace, transport: AsyncTransport, before: Scrape) -> None:
    """A table for each interval, or with `--json` a line for each interval and topic."""
    for at in range(1 if args.count is None else args.count):
        await asyncio.sleep(args.every / 1000)
        now = await scrape(transport)
        rows = rows_of(Change(before, now), args.namespace, args.sort)
        before = now
        if args.json:
            for row in rows:
                emit(asdict(row))
            continue
        if at:
            print()
        titles = [title for _, title in COLUMNS.values()]
        print_table(titles, map(cells, rows), numbers=titles[1:])


async def _live(args: argparse.Namespace, transport: AsyncTransport, before: Scrape) -> None:
    from rich.console import Console
    from rich.live import Live

    from delaylog.broker.cli.watching.screen import HEAD_LINES, View, detail, screen, table

    console, view = Console(), View(args.sort)
    change, stats, error = Change(before, before), None, ""
    intervals = 0
    # An interval of zero could be interrupted by nothing.
    every_s = max(args.every / 1000, 0.05)
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        next_s = time.monotonic()
        while not view.ended and (args.count is None or intervals < args.count):
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + every_s
                try:
                    change = Change(change.now, await scrape(transport))
                    intervals, error = intervals + 1, ""
                except ClientError as failure:
                    error = str(failure)
                stats = None
            rows = rows_of(change, args.namespace, view.sort)
            body = table(rows, view, console.height - HEAD_LINES, console.width)
            if view.detail and view.topic is not None:
                if stats is None or stats["topic"] != view.topic:
                    stats = await _stats(args, view.topic, error)
                body = detail(change, args.namespace, stats)
            live.update(screen(change, body, error), refresh=True)
            key = await keyboard.key(max(next_s - time.monotonic(), 0))
            if key is not None:
                view.press(key)


async def _stats(args: argparse.Namespace, topic: str, error: str) -> dict[str, Any]:
    """The counts of a topic; `error` in place of them if it cannot be read.

    A broker that has just failed to answer, with `error`, is not asked: keys would wait again.
    """
    if not error:
        try:
            return await call(args, "getStats", topic)
        except ClientError as failure:
            error = str(failure)
    return {"topic": topic, "counts": {}, "error": error}
