"""DL.SEND and DL.MSEND."""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.filters import TAG_BYTES_MAX, TAGS_MAX
from delaylog.broker.engine.sending import KEY_BYTES_MAX, TTL_MS_MAX, check_id
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import WRITTEN, Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.resp.native.host import NativeHost, host_of, translated
from delaylog.broker.resp.native.words import (
    misplaced,
    plain_numbers,
    refused,
    take_due,
    take_list,
    take_number,
    topic_key,
    unknown_option,
    written_ids,
)
from delaylog.broker.single_sends import Single, all_same, plain_wire
from delaylog.storage.batch import MERGE_MODES, Column

_FLAGS: Final = "write denyoom noscript no_multi quick"
_INT32: Final = 2**31
_RETRIES_MAX: Final = 2**16 - 2
_OPTIONS: Final = frozenset((b"ID", b"PRIORITY", b"TTL", b"KEY", b"RETRIES", b"MERGE"))
"""Those of a send that have one value."""


@command("dl.send", -4, "module", _FLAGS)
def dl_send(run: Run, argv: Args) -> Reply:
    """Send one message."""
    host = run.executor.host
    if host.__class__ is not NativeHost:
        host = host_of(run)
    key, body = topic_key(argv[1]), argv[3]
    limits = host.node.engine.limits
    if len(body) > limits.body_bytes_max:
        raise CommandError(b"TOOLARGE a body has at most %d bytes" % limits.body_bytes_max)
    due_ms, relative = take_due(argv[2], limits.horizon_ms, run.now_ms)
    if relative and len(argv) == 4:
        host.add_plain(key, body, due_ms, run.session)
        return WRITTEN
    single = Single(body, due_ms, relative)
    if len(argv) > 4:
        try:
            _take_options(single, argv)
        except EngineError as error:
            raise refused(error) from None
    host.add(key, single, run.session)
    return WRITTEN


def _take_options(single: Single, argv: Args) -> None:
    """The options of a send. Raises CommandError and BadRequestError."""
    single.plain = False
    at = 4
    while at < len(argv):
        option = argv[at].upper()
        if option == b"TAGS":
            tags, at = take_list(argv, at + 1)
            single.tags = _join_tags(tags)
            continue
        if option not in _OPTIONS:
            raise unknown_option(argv[at])
        if at + 1 >= len(argv):
            raise misplaced(option + b" value")
        value = argv[at + 1]
        at += 2
        if option == b"ID":
            check_id(value)
            if not value:
                raise CommandError(b"ERR an id is not empty")
            single.id = value
        elif option == b"PRIORITY":
            single.priority = take_number(value, b"PRIORITY", -_INT32 + 1, _INT32 - 1)
        elif option == b"TTL":
            single.ttl_ms = take_number(value, b"TTL", 1, TTL_MS_MAX)
        elif option == b"KEY":
            if len(value) > KEY_BYTES_MAX or not _is_text(value):
                raise CommandError(b"ERR a key is UTF-8 of at most %d bytes" % KEY_BYTES_MAX)
            single.key = value
        elif option == b"RETRIES":
            single.max_retry = take_number(value, b"RETRIES", 0, _RETRIES_MAX)
        else:
            single.merge = value.decode("utf-8", "replace").lower()
            if single.merge not in MERGE_MODES:
                raise CommandError(f"ERR MERGE is one of {', '.join(MERGE_MODES)}".encode())


def _join_tags(tags: list[bytes]) -> bytes:
    good = all(
        1 <= len(tag) <= TAG_BYTES_MAX and b"\n" not in tag and _is_text(tag) for tag in tags
    )
    if not good or len(tags) > TAGS_MAX:
        raise CommandError(
            b"ERR at most %d tags, UTF-8 of 1 to %d bytes without newlines"
            % (TAGS_MAX, TAG_BYTES_MAX)
        )
    return b"\n".join(tags)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@command("dl.msend", -4, "module", _FLAGS)
@translated
def dl_msend(run: Run, argv: Args) -> Reply:
    """Send many messages as one batch, accepted or refused whole."""
    host = host_of(run)
    key = topic_key(argv[1])
    dues, bodies = argv[2::2], argv[3::2]
    rows = len(bodies)
    limits = host.node.engine.limits
    if len(dues) != rows:
        raise CommandError(b"ERR after the topic come pairs of delay-ms and body")
    if rows > limits.bulk_rows_max or sum(map(len, bodies)) > limits.request_bytes_max:
        raise CommandError(
            b"TOOLARGE at most %d messages and %d bytes at once"
            % (limits.bulk_rows_max, limits.request_bytes_max)
        )
    # What others sent before in this turn comes first.
    host.flush()
    host.node.standing.check()
    now_ms = host.node.clock.now_ms()
    wire = plain_wire(bodies, _due_times(dues, limits.horizon_ms, now_ms))
    refs = host.send_wire(wire, rows, key).refs
    if not run.session.is_silenced():
        run.session.out += (b"*%d\r\n" % rows, written_ids(refs))
    return WRITTEN


def _due_times(texts: list[bytes], horizon_ms: int, now_ms: int) -> Column:
    """The due times, Unix ms; one if all are the same. Raises CommandError."""
    if all_same(texts):
        due_ms, relative = take_due(texts[0], horizon_ms, now_ms)
        return due_ms + now_ms if relative else due_ms
    delays = plain_numbers(texts)
    if delays is not None and int(delays.max()) <= horizon_ms:
        return delays + now_ms
    taken = [take_due(text, horizon_ms, now_ms) for text in texts]
    return np.array([due + now_ms if relative else due for due, relative in taken], np.int64)
