"""DL.SEND and DL.MSEND."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delaylog.broker.calls.turn.single_sends import all_same, plain_wire
from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import WRITTEN, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.resp.native.host import NativeHost, host_of, translated
from delaylog.broker.resp.native.permits import permit_messages
from delaylog.broker.resp.native.words import (
    misplaced,
    plain_numbers,
    take_due,
    take_list,
    take_text,
    topic_key,
    unknown_option,
    written_ids,
)
from delaylog.contract.message_fields import (
    BY_OPTION,
    ID,
    MERGE,
    TAGS,
    from_text,
    pack_fields,
)
from delaylog.storage.messages.batch import Column
from delaylog.storage.messages.singles import Single

_FLAGS: Final = "write denyoom noscript no_multi quick"


@command("dl.send", -4, "module", _FLAGS)
@translated
def dl_send(run: Run, argv: Args) -> Reply:
    """Send one message."""
    host = run.shared.host
    if host.__class__ is not NativeHost:
        host = host_of(run)
    key, body = topic_key(argv[1]), argv[3]
    if run.session.restricted is not None:
        permit_messages(run, key, 1)
    limits = host.node.engine.limits
    if len(body) > limits.body_bytes_max:
        raise CommandError(
            b"TOOLARGE a body has at most %d bytes (body_bytes_max of the broker's limits)"
            % limits.body_bytes_max
        )
    due_ms, relative = take_due(argv[2], limits.horizon_ms, run.now_ms)
    if relative and len(argv) == 4:
        host.add_plain(key, body, due_ms, run.session)
        return WRITTEN
    fields = _take_options(argv) if len(argv) > 4 else {}
    merge = fields.pop(MERGE.name, None)
    host.add(key, Single(body, due_ms, relative, fields or None, merge), run.session)
    return WRITTEN


def _take_options(argv: Args) -> dict[str, Any]:
    """Parse and pack the options of a send. Raises CommandError, MemberError."""
    values: dict[str, Any] = {}
    at = 4
    while at < len(argv):
        option = argv[at].upper()
        field = BY_OPTION.get(option)
        if field is None:
            raise unknown_option(argv[at])
        if field.member is TAGS:
            tags, at = take_list(argv, at + 1)
            values[TAGS.name] = [take_text(tag, option) for tag in tags]
            continue
        if at + 1 >= len(argv):
            raise misplaced(option + b" value")
        text = take_text(argv[at + 1], option)
        if not text and field.member is ID:
            raise CommandError(b"ERR an id must not be empty")
        values[field.name] = from_text(field, text)
        at += 2
    return pack_fields(values)


@command("dl.msend", -4, "module", _FLAGS)
@translated
def dl_msend(run: Run, argv: Args) -> Reply:
    """Send many messages as one batch, which is accepted or refused as a whole."""
    host = host_of(run)
    key = topic_key(argv[1])
    dues, bodies = argv[2::2], argv[3::2]
    rows = len(bodies)
    permit_messages(run, key, rows)
    limits = host.node.engine.limits
    if len(dues) != rows:
        raise CommandError(b"ERR after the topic, give pairs of delay-ms and body")
    if rows > limits.bulk_rows_max or sum(map(len, bodies)) > limits.request_bytes_max:
        raise CommandError(
            b"TOOLARGE at most %d messages and %d bytes at once"
            % (limits.bulk_rows_max, limits.request_bytes_max)
        )
    # Earlier sends of this turn go first.
    host.flush()
    host.node.role.check()
    now_ms = host.node.clock.now_ms()
    wire = plain_wire(bodies, _due_times(dues, limits.horizon_ms, now_ms))
    refs = host.send_wire(wire, rows, key).refs
    run.session.out += (b"*%d\r\n" % rows, written_ids(refs))
    return WRITTEN


def _due_times(texts: list[bytes], horizon_ms: int, now_ms: int) -> Column:
    """Return the due times in Unix ms, or one number if all are equal. Raises CommandError."""
    if all_same(texts):
        due_ms, relative = take_due(texts[0], horizon_ms, now_ms)
        return due_ms + now_ms if relative else due_ms
    delays = plain_numbers(texts)
    if delays is not None and int(delays.max()) <= horizon_ms:
        return delays + now_ms
    taken = [take_due(text, horizon_ms, now_ms) for text in texts]
    return np.array([due + now_ms if relative else due for due, relative in taken], np.int64)
