"""The hot calls without a task: each begins at once, and the callback of its commit answers it.

A function of SHORT or SHORT_BULK begins a call whose body has arrived. If the call has to wait, for
room or for deliveries to be permitted, or if it needs what is rare, the function returns False and
has done nothing: then the call takes the general way, the handlers of `handlers/messages`, as a
task. Both ways use the same functions for members and answers. A receive that finds no messages
waits as a `Poll`, which becomes a task only where it has to wait for something else than messages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import BULK, JSON, MSGPACK, BufferedContext, Form
from delaylog.broker.calls.forms.bulk_bodies import decoded_bulk
from delaylog.broker.calls.forms.parsers import read_json
from delaylog.broker.calls.handlers.messages import (
    SHARED_ROWS_MIN,
    bulk_members,
    parsed_single,
    parsed_singles,
    received_answer,
    sent_answer,
    sent_batch_answer,
    sent_many_answer,
    settled_bulk_answer,
    settling_of,
)
from delaylog.broker.calls.places import permit_group
from delaylog.broker.calls.shapes import ReceiveCall, parse_receipts, parse_receive, receive_call
from delaylog.broker.calls.turn.askers import Part, batch_of
from delaylog.broker.calls.turn.long_poll import Poll
from delaylog.broker.calls.turn.sends import PART_BYTES_MAX
from delaylog.broker.calls.turn.settles import NamedSettling, bulk_settling, permitted
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.model import Delivery, Settlement
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.shapes import ACK_AND_RECEIVE, JSON_VALUES_MAX, SETTLE
from delaylog.storage.messages.batch import unpack_map

KNOWN_BYTES_MAX: Final = 256
"""A larger body of a receive is parsed each time."""
KNOWN_MAX: Final = 1_024
"""Number of receives that are kept parsed."""
_OPENINGS: Final = (b"{", b"[")
"""The first characters of JSON that is read here; any other takes the general way."""


class ShortCall(BufferedContext):
    """A hot call in progress. Its carrier answers it when `reply` or `fail` is called."""

    gone: bool = False
    """Whether the client has left, or was answered."""

    @abstractmethod
    def composed(self, answer: Answer) -> bytes:
        """The bytes of an answer."""

    @abstractmethod
    def send(self, composed: bytes) -> None:
        """Answer the call with these bytes. Raises nothing."""

    @abstractmethod
    def reply(self, answer: Answer) -> None:
        """Answer the call. Raises nothing."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Answer the call with a refusal, or with a fault of the broker."""

    @abstractmethod
    def when_gone(self, call: Callable[[], None]) -> None:
        """Call back if the client leaves before the call is answered."""

    @property
    def fits(self) -> bool:
        """Whether the body is not larger than a request may be."""
        return len(self.raw) <= self.node.engine.limits.request_bytes_max

    def read(self, kind: type | tuple[type, ...] = dict) -> Any:
        """The members in the body; None if they are not of that kind, or if the body is larger than
        a request may be.
        """
        raw = self.raw
        if not self.fits:
            return None
        if (self._form or self.form).kind != JSON:
            members = self.decoded(raw, JSON_VALUES_MAX)
        elif raw[:1] in _OPENINGS:
            members = read_json(raw, JSON_VALUES_MAX)
        else:
            return None
        return members if isinstance(members, kind) else None


Begin: TypeAlias = Callable[[ShortCall], bool]


def begin_of(call: ApiCall, form: Form) -> Begin | None:
    """What begins a call of this form; None = it takes the general way."""
    return _BY_KIND.get(form.kind, _NO_CALLS).get(call.name)


# --------------------------------------------------------------------------- send


def _send(call: ShortCall) -> bool:
    node = call.node
    many = call.raw[:1] != b"{"
    if node.engine.housekeeping.crowded() or (many and len(call.raw) > PART_BYTES_MAX):
        return False
    members = call.read((dict, list))
    if members is None:
        return False
    now_ms = node.clock.now_ms()
    part: Part
    if not isinstance(members, list):
        part = single = parsed_single(call, members, now_ms)
        answer = partial(sent_answer, call, single)
    elif len(members) < SHARED_ROWS_MIN:
        singles = parsed_singles(call, members, now_ms)
        part, answer = batch_of(singles, now_ms), partial(sent_many_answer, call, singles)
    else:
        return False
    node.turn.sends.add(call.topic_key, part, None, _Answerer(call, answer))
    return True


def _send_bulk(call: ShortCall) -> bool:
    node = call.node
    if node.engine.housekeeping.crowded() or not call.fits or len(call.raw) > PART_BYTES_MAX:
        return False
    batch = decoded_bulk(call.raw, node.engine.limits)
    if batch.n >= SHARED_ROWS_MIN or batch.producer is not None:
        return False
    call.take_messages(batch.n, node.clock.now_ms())
    answer = partial(sent_batch_answer, call, batch)
    node.turn.sends.add(call.topic_key, batch, None, _Answerer(call, answer))
    return True


class _Asker:
    """A call that waits for its part of a merged call; see `turn/askers`."""

    __slots__ = ("_call",)

    def __init__(self, call: ShortCall) -> None:
        self._call = call

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self._call.gone

    def refuse(self, error: BaseException) -> None:
        """Answer with an error."""
        self._call.fail(error)


class _Answerer(_Asker):
    """Answers with what a function makes of the result."""

    __slots__ = ("_answer",)

    def __init__(self, call: ShortCall, answer: Callable[..., Answer]) -> None:
        self._call, self._answer = call, answer

    def tell(self, result: Iterable[object]) -> None:
        """What was asked for is done, and that is safe."""
        call = self._call
        try:
            answer = self._answer(*result)
        except Exception as error:
            call.fail(error)
        else:
            call.reply(answer)


# --------------------------------------------------------------------------- settle


def _settle(call: ShortCall) -> bool:
    engine = call.node.engine
    if engine.housekeeping.crowded_by_changes(rows=False):
        return False
    members = call.read()
    if members is None or "receipts" not in members or "ids" in members or "group" in members:
        return False
    values = SETTLE.take(members, engine.limits)
    if values["receipts"] is None:
        return False
    asked = _named(call, values["receipts"])
    answer = partial(_settled_answer, call, asked)
    wanted = settling_of(call.params["action"], values)
    call.node.turn.settles.add(call.topic_key, wanted, asked.receipts, _Answerer(call, answer))
    return True


def _settle_bulk(call: ShortCall) -> bool:
    engine = call.node.engine
    if engine.housekeeping.crowded_by_changes(rows=False) or not call.fits:
        return False
    wanted, meant = bulk_settling(unpack_map(call.raw), call.params["action"], engine.limits)
    answer = partial(settled_bulk_answer, call, meant)
    asked = [permitted(call, meant)]
    call.node.turn.settles.add(call.topic_key, wanted, asked, _Answerer(call, answer))
    return True


def _named(call: ShortCall, receipts: list[Any]) -> NamedSettling:
    named = parse_receipts(receipts)
    call.count = len(named)
    return NamedSettling(call, named)


def _settled_answer(call: ShortCall, asked: NamedSettling, *outcomes: Settlement) -> Answer:
    return call.answer({"results": asked.results(outcomes)})


# --------------------------------------------------------------------------- receive


def _receive(call: ShortCall) -> bool:
    asked = _asked(call) if call.node.role.may_deliver() else None
    if asked is None:
        return False
    permit_group(call, asked.group)
    _Receiver(call, asked, {}).look()
    return True


def _asked(call: ShortCall) -> ReceiveCall | None:
    """What a receive asks for; None if it takes the general way.

    Consumers repeat their requests, so each is parsed once.
    """
    said, known = (call.form.kind, call.raw, call.address), call.node.turn.known_receives
    asked = known.get(said)
    if asked is None:
        if call.form.kind != BULK:
            members = call.read()
        else:
            members = bulk_members(call.raw) if call.fits else None
        if members is None:
            return None
        asked = parse_receive(members, call.node.engine.limits, call.address)
        # A receive of certain messages is hardly repeated.
        if len(call.raw) <= KNOWN_BYTES_MAX and asked.ids is None:
            if len(known) >= KNOWN_MAX:
                del known[next(iter(known))]
            known[said] = asked
    return asked


class _Receiver(Poll[bytes]):
    """The receive of a short call."""

    __slots__ = ("_call", "_more")

    def __init__(self, call: ShortCall, asked: ReceiveCall, more: dict[str, object]) -> None:
        super().__init__(call.node, call.topic_key, asked)
        self._call = call
        self._more = more
        call.wait_ms = asked.wait_ms
        call.when_gone(self.cancel)

    def made(self, found: Delivery | None) -> bytes:
        """The answer with messages that are under lease, or with none."""
        call = self._call
        now_ms = call.node.clock.now_ms()
        return call.composed(received_answer(call, self.asking.call, found, now_ms, self._more))

    def reply(self, made: bytes) -> None:
        """Answer the call."""
        self._call.send(made)

    def fail(self, error: BaseException) -> None:
        """Answer the call with an error."""
        self._call.fail(error)


# --------------------------------------------------------------------------- ack and receive


def _ack_and_receive(call: ShortCall) -> bool:
    node = call.node
    crowded = node.engine.housekeeping.crowded_by_changes(rows=False)
    members = None if crowded or not node.role.may_deliver() else call.read()
    if members is None:
        return False
    values = ACK_AND_RECEIVE.take(members, node.engine.limits)
    asked = receive_call(values, call.address)
    permit_group(call, asked.group)
    node.engine.state.holding.check()
    acked = _named(call, values["receipts"])
    receiver = _AckedReceiver(call, acked, asked)
    node.turn.settles.add(call.topic_key, Settling("ack"), acked.receipts, receiver)
    return True


class _AckedReceiver(_Asker):
    """Receives once the acks are safe."""

    __slots__ = ("_acked", "_receive")

    def __init__(self, call: ShortCall, acked: NamedSettling, receive: ReceiveCall) -> None:
        super().__init__(call)
        self._acked, self._receive = acked, receive

    def tell(self, outcomes: list[Settlement]) -> None:
        """The messages are acked, and that is safe."""
        call = self._call
        try:
            results = self._acked.results(outcomes)
            if not call.gone:
                _Receiver(call, self._receive, {"results": results}).look()
        except Exception as error:
            call.fail(error)


_SETTLES: Final = ("ack", "nack", "reject", "extend", "beginAttempts")
SHORT: Final[dict[str, Begin]] = {
    "send": _send,
    "receive": _receive,
    **dict.fromkeys(_SETTLES, _settle),
    "ackAndReceive": _ack_and_receive,
}
"""What begins each hot call in JSON or msgpack, by the call's name."""
SHORT_BULK: Final[dict[str, Begin]] = {
    "send": _send_bulk,
    "receive": _receive,
    **dict.fromkeys(_SETTLES, _settle_bulk),
}
"""The same with a bulk body."""
_NO_CALLS: Final[dict[str, Begin]] = {}
_BY_KIND: Final = {JSON: SHORT, MSGPACK: SHORT, BULK: SHORT_BULK}
