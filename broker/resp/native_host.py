"""State of the native verbs: the node, the sends and acks of a turn, and delayed replies.

A client's rights on a topic are checked before a verb of the delay log does anything. The
principal's permissions decide, as they do for HTTP. A client whose `session.restricted` is None has
all rights and no limits, and is not checked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from delaylog.broker.calls.access.caller import check_group, may_settle
from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.turn.askers import all_same, plain_wire
from delaylog.broker.calls.turn.sends import send_apart
from delaylog.broker.calls.turn.settles import outcomes
from delaylog.broker.calls.turn.writes import Settling, send_batch, send_parts
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.model import SendResult, Settlement
from delaylog.broker.engine.topics.groups import DEFAULT_NAME
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import Run
from delaylog.broker.keyspace.replies import WAITS, ErrorReply, Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.native_words import ID_LINE_SIZE, refusal, written_ids
from delaylog.broker.resp.turns import Turns
from delaylog.contract.error_codes import CODES
from delaylog.contract.members import BatchError
from delaylog.storage.messages.batch import Single, decode_send
from delaylog.storage.messages.rows import FEW_ROWS_MAX

if TYPE_CHECKING:
    from delaylog.broker.calls.access.caller import Caller
    from delaylog.broker.resp.connection import Connection
    from delaylog.contract.calls.call import Right


log = logging.getLogger("delaylog.resp")

PendingSend = tuple[Single, list[bytes], int]
"""A message, the client's list of replies, and the index of its reply there."""
_PendingAck = tuple[list[Receipts], list[bytes], int]
"""Receipts by lease, the client's list of replies, and the index of the reply there."""
_REJECTED = 3
_ACK: Final = "ack"
"""The kind of a step of acks; that of sends is their `merge`."""
CODE_OF: Final = {b"READONLY": "not_ready"} | {
    each.word.encode(): each.code for each in CODES.values()
}
"""The code that is counted for the first word of an error."""


class Wire:
    """An encoded reply, the same for both protocol versions."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _PlainSends:
    """Plain messages to a topic, which have only body and delay, as columns. The reply of each is
    at an index of a list, as in `PendingSend`.
    """

    __slots__ = ("bodies", "delays", "indexes", "outs")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.delays: list[int] = []
        self.outs: list[list[bytes]] = []
        self.indexes: list[int] = []

    def items(self) -> list[PendingSend]:
        """Return the messages as `PendingSend`s."""
        columns = zip(self.bodies, self.delays, self.outs, self.indexes, strict=True)
        return [
            (Single(body, delay_ms, relative=True), out, index)
            for body, delay_ms, out, index in columns
        ]


class _Step:
    """Alike commands of a turn, which make one frame for each topic."""

    __slots__ = ("acks", "kind", "sends")

    def __init__(self, kind: str | None) -> None:
        self.kind = kind
        self.sends: dict[TopicKey, _PlainSends | list[PendingSend]] = {}
        self.acks: dict[TopicKey, list[_PendingAck]] = {}


class _Steps:
    """The sends and acks of a turn, which are carried out step by step.

    A client's commands keep their order, those to different topics too: a crash must not keep an
    ack without the send before it. Each command joins the first step of its kind that is not before
    the step of the client's last one. Commands of different clients have no order.
    """

    __slots__ = ("_last", "plain", "steps")

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.plain: dict[TopicKey, _PlainSends] = {}
        """The plain messages of the only step: they need no search."""
        self._last: dict[Session, int] = {}
        """Index of the step of each client's last command, unless it is the first step."""

    def place(self, kind: str | None, session: Session) -> _Step:
        """Return the step that a client's next command joins, perhaps a new one."""
        steps, index = self.steps, self._last.get(session, 0)
        count = len(steps)
        while index < count and steps[index].kind != kind:
            index += 1
        if index == count:
            self.plain = {}
            steps.append(_Step(kind))
        if index:
            self._last[session] = index
        return steps[index]

    def place_plain(self, key: TopicKey, session: Session) -> _PlainSends | None:
        """Return what a client's plain message joins; None if it is no longer plain."""
        sends = self.place(None, session).sends
        group = sends.get(key)
        if group is None:
            group = sends[key] = _PlainSends()
        elif not isinstance(group, _PlainSends):
            return None
        if len(self.steps) == 1:
            self.plain[key] = group
        return group

    def sends_of(self, key: TopicKey, merge: str | None, session: Session) -> list[PendingSend]:
        """Return what a client's message with options joins."""
        sends = self.place(merge, session).sends
        group = sends.get(key)
        if not isinstance(group, list):
            self.plain.pop(key, None)
            group = sends[key] = [] if group is None else group.items()
        return group


class NativeHost:
    """Shared by all connections."""

    def __init__(self, node: ServingNode, turns: Turns) -> None:
        self.node = node
        self.turns = turns
        self._loop = asyncio.get_running_loop()
        self._steps = _Steps()

    # ------------------------------------------------------------------ sends of a turn

    def add_plain(self, key: TopicKey, body: bytes, delay_ms: int, session: Session) -> None:
        """Add a plain message to the sends of this turn, and reserve its reply."""
        steps = self._steps
        plain = steps.plain.get(key) or steps.place_plain(key, session)
        if plain is None:
            self.add(key, Single(body, delay_ms, relative=True), session)
            return
        out = session.out
        plain.bodies.append(body)
        plain.delays.append(delay_ms)
        plain.outs.append(out)
        plain.indexes.append(len(out))
        out.append(b"")

    def add(self, key: TopicKey, single: Single, session: Session) -> None:
        """Add a message with options to the sends of this turn, and reserve its reply."""
        out = session.out
        self._steps.sends_of(key, single.merge, session).append((single, out, len(out)))
        out.append(b"")

    def add_ack(self, key: TopicKey, receipts: list[Receipts], session: Session) -> None:
        """Add an ack to those of this turn, and reserve its reply."""
        out = session.out
        acks = self._steps.place(_ACK, session).acks
        acks.setdefault(key, []).append((receipts, out, len(out)))
        out.append(b"")

    def flush(self) -> bool:
        """Send and ack the messages collected so far; returns False if there were none.

        Raises NotLeadingError, and keeps them, while the node hands over its leadership.
        """
        steps = self._steps.steps
        if not steps:
            return False
        self.node.role.check()
        self._steps = _Steps()
        for step in steps:
            for key, asked in step.acks.items():
                self._ack(asked, key)
            for key, group in step.sends.items():
                if isinstance(group, _PlainSends):
                    self._send_plain(group, key)
                else:
                    self._send_in_frames(group, key)
        return True

    def forget(self) -> None:
        """Drop the sends and acks of this turn; their clients are closed."""
        self._steps = _Steps()

    def owes(self, session: Session) -> bool:
        """Whether earlier replies to a client are not written yet."""
        return cast("Connection", session.worker).owed > 0 or bool(session.out)

    def _ack(self, asked: list[_PendingAck], key: TopicKey) -> None:
        every = [each for receipts, _, _ in asked for each in receipts]
        try:
            settled = iter(self.settle(every, key, Settling("ack")))
        except Exception as error:
            told = self.told(error, len(asked))
            if told is None:
                raise
            for _, out, index in asked:
                out[index] = b"-%b\r\n" % told.text
            return
        for receipts, out, index in asked:
            out[index] = b":%d\r\n" % sum(next(settled).done for _ in receipts)

    def settle(self, receipts: list[Receipts], key: TopicKey, wanted: Settling) -> list[Settlement]:
        """Settle messages of several leases; returns an outcome for each."""
        node = self.node
        settled = outcomes(node, key, wanted, receipts)
        node.appended()
        node.wake_ready()
        if wanted.verb != "ack":
            node.kick_dispatch()
        return settled

    def _send_plain(self, plain: _PlainSends, key: TopicKey) -> None:
        node = self.node
        limits = node.engine.limits
        delays, rows = plain.delays, len(plain.bodies)
        if (
            rows <= FEW_ROWS_MAX
            or rows > limits.bulk_rows_max
            or sum(map(len, plain.bodies)) > limits.request_bytes_max
        ):
            self._send_in_frames(plain.items(), key)
            return
        try:
            now_ms = node.clock.now_ms()
            due = delays[0] if all_same(delays) else np.array(delays, np.int64)
            refs = self.send_wire(plain_wire(plain.bodies, due + now_ms), rows, key).refs
        except Exception as error:
            if refusal(error) is None:
                raise
            # Nothing was sent. Sent again in parts, each message gets its own reply or error.
            self._send(plain.items(), key)
            return
        lines = written_ids(refs)
        starts = range(0, rows * ID_LINE_SIZE, ID_LINE_SIZE)
        for start, out, index in zip(starts, plain.outs, plain.indexes, strict=True):
            out[index] = lines[start : start + ID_LINE_SIZE]

    def _send_in_frames(self, items: list[PendingSend], key: TopicKey) -> None:
        """Send messages in batches within the limits of one request."""
        limits = self.node.engine.limits
        total = sum([len(single.body) for single, _, _ in items])
        if total <= limits.request_bytes_max and len(items) <= limits.bulk_rows_max:
            self._send(items, key)
            return
        half = len(items) // 2
        self._send_in_frames(items[:half], key)
        self._send_in_frames(items[half:], key)

    def _send(self, items: list[PendingSend], key: TopicKey) -> None:
        for part, result in send_apart(items, lambda some: self.send_batch(some, key)):
            if isinstance(result, Exception):
                told = self.told(result, len(part))
                if told is None:
                    raise result
                text = b"-%b\r\n" % told.text
                for _, out, index in part:
                    out[index] = text
                continue
            codes = result.results
            lines = written_ids(result.refs)
            start = -ID_LINE_SIZE
            for row, (single, out, index) in enumerate(part):
                start += ID_LINE_SIZE
                if (codes if isinstance(codes, int) else codes[row]) == _REJECTED:
                    self._count("conflict")
                    out[index] = b"-CONFLICT a living message has this id\r\n"
                elif single.id:
                    out[index] = b"$%d\r\n%b\r\n" % (len(single.id), single.id)
                else:
                    out[index] = lines[start : start + ID_LINE_SIZE]

    def send_batch(self, items: list[PendingSend], key: TopicKey) -> SendResult:
        """Send messages as one batch."""
        node = self.node
        result = send_parts(node, key, [single for single, _, _ in items])
        node.appended()
        return result

    def send_wire(self, wire: bytes, rows: int, key: TopicKey) -> SendResult:
        """Send a bulk body."""
        node = self.node
        now_ms = node.clock.now_ms()
        result = send_batch(node, key, decode_send(wire, rows_max=rows), now_ms)
        node.appended()
        return result

    # ------------------------------------------------------------------ delayed replies

    def told(self, error: Exception, count: int = 1) -> CommandError | None:
        """The reply for an error, which is counted as the reply to that many commands; None if the
        error is not a refusal.
        """
        reply = refusal(error)
        if reply is not None:
            self._count(CODE_OF.get(reply.text.partition(b" ")[0], "bad_request"), count)
        return reply

    def _count(self, code: str, count: int = 1) -> None:
        self.node.timings.problems["resp", code] += count

    def answer_later(
        self, run: Run, verb: str, work: Awaitable[Reply | Wire], *, wait_ms: int = 0
    ) -> Reply:
        """Reply when `work` is done, which waits that long for messages; the client's next command
        runs after it.
        """
        delayed = Delayed(self, run, verb, wait_ms)

        async def answer() -> None:
            try:
                reply = await work
            except Exception as error:
                delayed.fail(error)
            else:
                delayed.reply(reply)

        delayed.connection.task = self._loop.create_task(answer())
        return WAITS


class Delayed:
    """A reply that comes later."""

    __slots__ = ("_began_s", "_host", "_verb", "_wait_ms", "connection", "session")

    def __init__(self, host: NativeHost, run: Run, verb: str, wait_ms: int) -> None:
        self.session = run.session
        self.connection = cast("Connection", run.session.worker)
        self._host = host
        self._verb = verb
        self._wait_ms = wait_ms
        self._began_s = host.node.machine.steady_s()
        self.session.awaiting = wait_ms > 0

    def reply(self, reply: Reply | Wire, *, at_once: bool = False) -> None:
        """Reply, and let the client's next command run.

        `at_once`: the reply waits for nothing but the client's earlier replies.
        """
        node, connection = self._host.node, self.connection
        seconds = node.machine.steady_s() - self._began_s
        node.timings.note_request("resp", self._verb, seconds, self._wait_ms)
        connection.task = None
        self.session.awaiting = False
        if isinstance(reply, Wire):
            at_once = at_once and not self._host.owes(self.session)
            self.session.out.append(reply.data)
            if at_once:
                self._host.turns.reply_at_once(connection)
            else:
                connection.has_output()
        else:
            self.session.deliver(reply)
        connection.finished()

    def fail(self, error: Exception) -> None:
        """Reply with a refusal; any other error ends the node."""
        told = self._host.told(error)
        if told is None:
            log.error("unexpected error", exc_info=error)
            self._host.node.fail(error)
        else:
            self.reply(ErrorReply(told.text))


def host_of(run: Run) -> NativeHost:
    """Return the host of the native verbs. Raises CommandError if there is none."""
    host = run.shared.host
    if not isinstance(host, NativeHost):
        raise CommandError(b"ERR DL.* commands are not available: this keyspace has no broker")
    return host


def translated(call: Callable[[Run, list[bytes]], Reply]) -> Callable[[Run, list[bytes]], Reply]:
    """Decorate a verb: refusals of the engine become errors of this protocol."""

    def verb(run: Run, argv: list[bytes]) -> Reply:
        try:
            return call(run, argv)
        except (EngineError, BatchError, CommandError) as error:
            if isinstance(error, Problem) and error.code == "forbidden":
                run.shared.on_denied(run.session, "forbidden", argv[0].lower())
            told = host_of(run).told(error)
            assert told is not None, "all are refusals"
            raise told from None

    verb.__doc__ = call.__doc__
    return verb


# --------------------------------------------------------------------------------------- rights


def permit(run: Run, right: Right, key: TopicKey, group: str | None = None) -> None:
    """Raise a Problem unless the client may do this to a group of a topic; None = to all groups.

    It counts as a call of the principal.
    """
    caller: Caller | None = run.session.restricted
    if caller is not None:
        caller.take_call(run.now_ms)
        check_group(caller, host_of(run).node.engine.state, right, key, group)


def permit_messages(run: Run, key: TopicKey, count: int) -> None:
    """Raise a Problem unless the client may send this number of messages to a topic."""
    caller: Caller | None = run.session.restricted
    if caller is None:
        return
    if caller.calls is not None:
        caller.take_call(run.now_ms)
    # The usual answer, without the arguments of a refusal.
    if not caller.permissions.may("send", key):
        caller.check("send", key)
    if caller.messages is not None:
        caller.take_messages(count, run.now_ms)


def permit_settle(
    run: Run, host: NativeHost, key: TopicKey, receipts: list[Receipts]
) -> list[Receipts]:
    """The receipts. Those of groups that the client may not settle get lease 0: they are invalid.

    Raises a Problem if it may settle in no group of the topic.
    """
    caller: Caller | None = run.session.restricted
    if caller is None:
        return receipts
    caller.take_call(run.now_ms)
    caller.check_some_group("receive", key)
    state = host.node.engine.state
    return [
        each if may_settle(caller, state, key, each.lease) else each._replace(lease=0)
        for each in receipts
    ]


def may_see_body(run: Run, key: TopicKey) -> bool:
    """Whether the client may see bodies of messages in the default group of a topic."""
    caller: Caller | None = run.session.restricted
    return caller is None or caller.may("bodies", key, DEFAULT_NAME)
