"""Pub/sub: SUBSCRIBE and its kin, PUBLISH, PUBSUB.

A confirmation is a message of its own for each channel, so these write their replies themselves;
RESP3 clients get them as pushes and no reply beside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.encoding import encode_into
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.globs import matcher
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import WRITTEN, Push, Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.session import Session

_FLAGS: Final = "pubsub noscript loading stale sentinel"
Table = dict[bytes, dict[Session, None]]


def _enter(
    run: Run,
    word: bytes,
    names: list[bytes],
    mine: dict[bytes, None],
    table: Table,
    count: Callable[[], int],
) -> Reply:
    session = run.session
    for name in names:
        mine[name] = None
        table.setdefault(name, {})[session] = None
        encode_into(session.out, Push([word, name, count()]), session.resp)
    # No CLIENT REPLY keeps these back, but this was the command that one was to skip.
    session.is_silenced()
    session.look()
    return WRITTEN


def _leave(
    run: Run,
    word: bytes,
    names: list[bytes],
    mine: dict[bytes, None],
    table: Table,
    count: Callable[[], int],
) -> Reply:
    session = run.session
    gone: list[bytes | None] = [*(names or mine)]
    for name in gone or [None]:
        if name is not None and name in mine:
            del mine[name]
            run.executor.pubsub.drop(table, name, session)
        encode_into(session.out, Push([word, name, count()]), session.resp)
    # No CLIENT REPLY keeps these back, but this was the command that one was to skip.
    session.is_silenced()
    session.look()
    return WRITTEN


@command("subscribe", -2, _FLAGS)
def subscribe(run: Run, argv: Args) -> Reply:
    """Listen to channels."""
    session, table = run.session, run.executor.pubsub.channels
    return _enter(
        run, b"subscribe", argv[1:], session.channels, table, lambda: session.subscriptions
    )


@command("unsubscribe", -1, _FLAGS)
def unsubscribe(run: Run, argv: Args) -> Reply:
    """Listen to channels, or to any, no more."""
    session, table = run.session, run.executor.pubsub.channels
    return _leave(
        run, b"unsubscribe", argv[1:], session.channels, table, lambda: session.subscriptions
    )


@command("psubscribe", -2, _FLAGS)
def psubscribe(run: Run, argv: Args) -> Reply:
    """Listen to channels that match."""
    session, table = run.session, run.executor.pubsub.patterns
    return _enter(
        run, b"psubscribe", argv[1:], session.patterns, table, lambda: session.subscriptions
    )


@command("punsubscribe", -1, _FLAGS)
def punsubscribe(run: Run, argv: Args) -> Reply:
    """No more."""
    session, table = run.session, run.executor.pubsub.patterns
    return _leave(
        run, b"punsubscribe", argv[1:], session.patterns, table, lambda: session.subscriptions
    )


@command("ssubscribe", -2, _FLAGS, keys=(1, -1, 1))
def ssubscribe(run: Run, argv: Args) -> Reply:
    """Listen to shard channels."""
    session, table = run.session, run.executor.pubsub.shard_channels
    mine = session.shard_channels
    return _enter(run, b"ssubscribe", argv[1:], mine, table, lambda: len(mine))


@command("sunsubscribe", -1, _FLAGS, keys=(1, -1, 1))
def sunsubscribe(run: Run, argv: Args) -> Reply:
    """No more."""
    session, table = run.session, run.executor.pubsub.shard_channels
    mine = session.shard_channels
    return _leave(run, b"sunsubscribe", argv[1:], mine, table, lambda: len(mine))


@command("publish", 3, "pubsub_command loading stale fast may_replicate sentinel")
def publish(run: Run, argv: Args) -> Reply:
    """Deliver a message to who listens now; answers to how many."""
    return run.executor.pubsub.publish(argv[1], argv[2])


@command("spublish", 3, "pubsub_command loading stale fast may_replicate", keys=(1, 1, 1))
def spublish(run: Run, argv: Args) -> Reply:
    """The same, to a shard channel."""
    return run.executor.pubsub.publish_shard(argv[1], argv[2])


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


@command("pubsub|channels", -2, "pubsub_command loading stale")
def pubsub_channels(run: Run, argv: Args) -> Reply:
    """Channels that somebody listens to."""
    return _named(run.executor.pubsub.channels, argv)


@command("pubsub|numsub", -2, "pubsub_command loading stale")
def pubsub_numsub(run: Run, argv: Args) -> Reply:
    """How many listen to each."""
    return _counts(run.executor.pubsub.channels, argv)


@command("pubsub|numpat", 2, "pubsub_command loading stale")
def pubsub_numpat(run: Run, argv: Args) -> Reply:
    """How many patterns are listened to."""
    return len(run.executor.pubsub.patterns)


@command("pubsub|shardchannels", -2, "pubsub_command loading stale")
def pubsub_shardchannels(run: Run, argv: Args) -> Reply:
    """Shard channels that somebody listens to."""
    return _named(run.executor.pubsub.shard_channels, argv)


@command("pubsub|shardnumsub", -2, "pubsub_command loading stale")
def pubsub_shardnumsub(run: Run, argv: Args) -> Reply:
    """How many listen to each."""
    return _counts(run.executor.pubsub.shard_channels, argv)


@command("pubsub|help", 2, "loading stale")
def pubsub_help(run: Run, argv: Args) -> Reply:
    """What there is."""
    return [
        b"PUBSUB <subcommand> [<arg> ...]: CHANNELS [pattern], NUMPAT, NUMSUB [channel ...], "
        b"SHARDCHANNELS [pattern], SHARDNUMSUB [channel ...]"
    ]
