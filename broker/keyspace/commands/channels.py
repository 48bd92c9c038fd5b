"""Pub/sub: SUBSCRIBE and related commands, PUBLISH, PUBSUB.

A subscribing command confirms each channel by a separate message, so it appends its replies to the
output itself. RESP3 clients get the confirmations as pushes, and no other reply.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import WRITTEN, Push, Reply, encode_into
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import PubSub
from delaylog.broker.keyspace.values.globs import check_pattern, matcher

_FLAGS: Final = "pubsub channels noscript loading stale"
Table: TypeAlias = dict[bytes, dict[Session, None]]


class _Kind(NamedTuple):
    """Channels or patterns."""

    mine: Callable[[Session], dict[bytes, None]]
    """The subscriptions of a client."""
    table: Callable[[PubSub], Table]


_CHANNELS: Final = _Kind(attrgetter("channels"), attrgetter("channels"))
_PATTERNS: Final = _Kind(attrgetter("patterns"), attrgetter("patterns"))
PATTERNS_BYTES_MAX: Final = 64 << 10
"""Limit of the patterns of a client: the first message compiles matchers for all of them."""


def _enter(run: Run, argv: Args, kind: _Kind) -> Reply:
    mine, table = kind.mine(run.session), kind.table(run.shared.pubsub)
    for name in argv[1:]:
        mine[name] = None
        table.setdefault(name, {})[run.session] = None
        _confirm(run, name)
    return _confirmed(run)


def _leave(run: Run, argv: Args, kind: _Kind) -> Reply:
    mine, table = kind.mine(run.session), kind.table(run.shared.pubsub)
    names = argv[1:] or list(mine)
    for name in names:
        if name in mine:
            del mine[name]
            run.shared.pubsub.drop(table, name, run.session)
        _confirm(run, name)
    if not names:
        _confirm(run, None)
    return _confirmed(run)


def _confirm(run: Run, name: bytes | None) -> None:
    session = run.session
    assert run.command is not None
    encode_into(session.out, Push([run.command.name, name, session.subscriptions]), session.resp)


def _confirmed(run: Run) -> Reply:
    run.session.update_special()
    return WRITTEN


@command("subscribe", -2, "pubsub", _FLAGS)
def subscribe(run: Run, argv: Args) -> Reply:
    """Subscribe to channels."""
    return _enter(run, argv, _CHANNELS)


@command("unsubscribe", -1, "pubsub", _FLAGS)
def unsubscribe(run: Run, argv: Args) -> Reply:
    """Unsubscribe from channels, or from all."""
    return _leave(run, argv, _CHANNELS)


@command("psubscribe", -2, "pubsub", _FLAGS)
def psubscribe(run: Run, argv: Args) -> Reply:
    """Subscribe to channels that match patterns."""
    for pattern in argv[1:]:
        check_pattern(pattern)
    if sum(map(len, {*argv[1:], *run.session.patterns})) > PATTERNS_BYTES_MAX:
        raise CommandError(b"ERR the patterns of a client may have %d bytes" % PATTERNS_BYTES_MAX)
    return _enter(run, argv, _PATTERNS)


@command("punsubscribe", -1, "pubsub", _FLAGS)
def punsubscribe(run: Run, argv: Args) -> Reply:
    """Unsubscribe from patterns, or from all."""
    return _leave(run, argv, _PATTERNS)


@command("publish", 3, "pubsub", "channels loading stale fast may_replicate")
def publish(run: Run, argv: Args) -> Reply:
    """Publish a message; returns the number of recipients."""
    return run.shared.pubsub.publish(argv[1], argv[2])


def _named(table: Table, argv: Args) -> list[bytes]:
    if len(argv) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try PUBSUB HELP."
            % argv[1]
        )
    if len(argv) == 2:
        return list(table)
    matches = matcher(argv[2])
    return [name for name in table if matches(name)]


def _counts(table: Table, argv: Args) -> list[bytes | int]:
    out: list[bytes | int] = []
    for name in argv[2:]:
        out += [name, len(table.get(name, ()))]
    return out


@command("pubsub|channels", -2, "pubsub", "channels loading stale")
def pubsub_channels(run: Run, argv: Args) -> Reply:
    """List the channels that have subscribers."""
    return _named(run.shared.pubsub.channels, argv)


@command("pubsub|numsub", -2, "pubsub", "channels loading stale")
def pubsub_numsub(run: Run, argv: Args) -> Reply:
    """Count the subscribers of channels."""
    return _counts(run.shared.pubsub.channels, argv)


@command("pubsub|numpat", 2, "pubsub", "channels loading stale")
def pubsub_numpat(run: Run, argv: Args) -> Reply:
    """Count the subscribed patterns."""
    return len(run.shared.pubsub.patterns)
