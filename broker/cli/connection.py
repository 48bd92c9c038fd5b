"""How a verb reaches a broker: the address, the credentials, and one call of the table."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final

from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.progress import SECONDS, Progress
from delaylog.client import AsyncPlainClient
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import Places, json_call, path_of, request
from delaylog.client.errors import ClientError, NotFound
from delaylog.client.options import (
    ConnectionOptions,
    TransportOptions,
    split_connection,
)
from delaylog.client.shards.sharding import Shard
from delaylog.client.wire.endpoints import URL, default_endpoints
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.client.wire.times import span_of
from delaylog.contract.calls.shapes import CURSOR, LIST_MAX
from delaylog.contract.calls.table import BY_NAME
from delaylog.contract.calls.topics import TOPICS
from delaylog.contract.members import Member

TIMEOUT_S: Final = 60.0
"""Time limit of a call: a person waits for it, and can end it by Ctrl-C."""
FAILOVER: Final = timedelta(seconds=10)
RECONNECT: Final = timedelta(seconds=3)
"""How long a call is repeated: a restart or an election fails no script, and an address where no
broker is shows soon.
"""
ANSWER_S: Final = 5.0
"""Time limit of a call to a broker that is watched or examined: silence is a finding too."""


def broker_of(args: argparse.Namespace) -> Shard:
    """The broker or cluster to call: of `--url`, of the variable, or on this machine.

    UsageError for an address that is none, and for a variable with several shards, of which the
    command line has to name one.
    """
    try:
        if args.url is not None:
            return Shard.of(args.url)
        found, *others = default_endpoints()
    except ValueError as error:
        raise UsageError(str(error)) from None
    if others:
        raise UsageError(
            f"{URL} has {1 + len(others)} brokers, and a command calls one: choose it with --url"
        )
    return Shard.of(found)


def route_of(args: argparse.Namespace) -> tuple[LeaderRoute, TransportOptions]:
    """The nodes to call, with the credentials, and the options of a transport."""
    credentials, options = split_connection(connection_of(args))
    broker = broker_of(args)
    return LeaderRoute(broker.url, broker.members, credentials), options


@asynccontextmanager
async def transport_of(
    args: argparse.Namespace, *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[AsyncTransport]:
    """A transport to the broker for several calls, closed at the end."""
    route, options = route_of(args)
    options["timeout_s"] = timeout_s
    transport = AsyncTransport(
        route,
        failover_s=FAILOVER.total_seconds(),
        reconnect_s=RECONNECT.total_seconds(),
        **options,
    )
    try:
        yield transport
    finally:
        await transport.close()


def client_of(args: argparse.Namespace) -> AsyncPlainClient:
    """A client of the broker. CredentialsError for options that cannot be used."""
    broker = broker_of(args)
    return AsyncPlainClient(
        broker.url,
        members=broker.members,
        namespace=args.namespace,
        failover=FAILOVER,
        reconnect=RECONNECT,
        **connection_of(args),
    )


def connection_of(args: argparse.Namespace) -> ConnectionOptions:
    """The options of the connection; the environment gives those that are absent."""
    if args.token == "-":
        # A verb may make several calls, and the line is there once.
        args.token = _first_line()
    return {
        "token": args.token,
        "token_file": args.token_file,
        "ca_file": args.ca_file,
        "client_cert": args.client_cert,
        "client_key": args.client_key,
        "insecure_plain_token": args.insecure_plain_token,
        "timeout": timedelta(seconds=TIMEOUT_S),
    }


async def call(
    args: argparse.Namespace, name: str, *place: str, nulls: Sequence[str] = (), **members: Any
) -> dict[str, Any]:
    """Make one call of the table. `place`: the names in its path; `nulls`: members of the body."""
    in_topics = BY_NAME[name].path.startswith(TOPICS)
    first: tuple[Places, ...] = (Places(args.namespace),) if in_topics else ()
    made = request(name, *first, *place, **members)
    if nulls:
        # `request` leaves None out.
        path = path_of(name, *first, *place)
        made = json_call(BY_NAME[name].method, path, members | dict.fromkeys(nulls))
    async with transport_of(args) as transport:
        with waiting(args):
            return await transport.carry(made)


async def listed(
    args: argparse.Namespace,
    name: str,
    rows: str,
    *place: str,
    limit: int | None = None,
    rest: str = "",
    **query: Any,
) -> list[dict[str, Any]]:
    """The member `rows` of a list's answers, page after page: all, or `limit` of them.

    A list without pages may be cut; `rest` then says how to see the rest.
    """
    found: list[dict[str, Any]] = []
    while True:
        most = LIST_MAX if limit is None else limit - len(found)
        answer = await call(args, name, *place, limit=most, **query)
        found += answer[rows]
        query["cursor"] = answer.get("cursor")
        if query["cursor"] is None or len(found) == limit:
            break
    if limit is None and len(found) == LIST_MAX and CURSOR not in BY_NAME[name].query:
        note(args, f"only the first {LIST_MAX:,} are listed{rest}")
    return found


def waiting(args: argparse.Namespace) -> Progress:
    """Progress of a verb that waits for a broker, and has nothing to count meanwhile."""
    action = getattr(args, "action", None)
    label = f"{args.verb} {action}" if action else args.verb
    return Progress(label, unit=SECONDS, quiet=args.json)


async def say_if_absent(args: argparse.Namespace) -> None:
    """Say on standard error that a topic of which there is nothing to show does not exist: its name
    may be mistyped, and a topic that nobody has made yet reads as empty.
    """
    try:
        await call(args, "getTopic", args.topic)
    except NotFound:
        note(args, f"topic {args.topic} does not exist yet; nothing to show")
    except ClientError:
        # Whoever may receive from a topic need not have the right to read it.
        pass


def note(args: argparse.Namespace, text: str) -> None:
    """Say something about a result, on standard error."""
    print(json.dumps({"note": text}) if args.json else text, file=sys.stderr)


def given(args: argparse.Namespace, *members: Member[Any]) -> dict[str, Any]:
    """The members of a call that the command line gives."""
    values = {member.name: getattr(args, member.name, None) for member in members}
    return {name: value for name, value in values.items() if value is not None}


def in_spans(members: dict[str, Any]) -> dict[str, Any]:
    """Members of a call as arguments of a client, which takes durations as timedelta."""
    said = dict(members)
    for name in ("delay", "lease", "wait"):
        ms = said.pop(f"{name}_ms", None)
        if ms is not None:
            said[name] = span_of(ms)
    return said


def _first_line() -> str:
    """The token for `--token -`. What follows it on standard input is left to the verb."""
    with interruptible():
        if sys.stdin.isatty():
            return getpass.getpass("token: ")
        return sys.stdin.buffer.readline().decode("latin-1").strip()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a read at once. asyncio's own handler waits for the loop, which is blocked."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # One that came since the last turn of the loop has only asked for a cancellation.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)
