"""`Context`, the argument of every handler: one call, its decoded query and body, and the node.

A carrier (`broker/web`, `broker/embedded`) derives a class from `Context` that reads the body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

import msgpack
import orjson

from delaylog.broker.calls.access.caller import ANYONE, Caller
from delaylog.broker.calls.access.sessions import TICKET
from delaylog.broker.calls.answers import Answer, Problem
from delaylog.broker.calls.forms.parsers import PLAIN_BYTES_MAX, read_json, read_msgpack
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.host.watch.audit_files import CHANGING, Fact
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.shapes import JSON_ROWS_MAX, READ, STAGED_PARTS_MAX
from delaylog.contract.members import Shape

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode

BULK: Final = "application/vnd.delaylog.batch"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"


class Form(NamedTuple):
    """What the headers of a request say of its body and of its answer."""

    kind: str
    """Media type of the body; JSON when absent."""
    packed: bool
    """Whether the client asks for the answer as msgpack."""
    accepts_bulk: bool
    """Whether it asks for it as a bulk body."""


def form_of(headers: Mapping[str, str]) -> Form:
    """The form of a request with these headers."""
    kind = headers.get("Content-Type", JSON).partition(";")[0].strip().lower() or JSON
    accept = headers.get("Accept", "*/*")
    packed = kind == MSGPACK if accept == "*/*" else MSGPACK in accept
    return Form(kind, packed, BULK in accept)


class Context(ABC):
    """One call in progress.

    What is rarely set has its default in the class: setting it for each call would take as long as
    parsing a short body.
    """

    caller: Caller = ANYONE
    """Who makes the call; a carrier that authenticates sets it."""
    call: ApiCall | None = None
    name: str = ""
    """Name of the call, also of one that is not in the table; empty while it is not known."""
    params: Mapping[str, str] = MappingProxyType({})
    topic_key: TopicKey = ("default", "")
    _form: Form | None = None
    origin: Any = None
    """The carrier's connection, if it has one."""
    count: int | None = None
    """How many messages or ids the call concerns, for the audit log."""
    face: str = "http"
    """The face that the call came by, for the audit log."""
    facts: Mapping[str, Fact] = MappingProxyType({})
    """What a call that changes something says, for the audit log; never a secret."""
    refused: str = ""
    """Code of a refusal that the answer tells in its body, with an HTTP status of success."""
    request_id: str = ""
    """Id of the request, which the answer and log lines name; empty if the carrier has none."""
    wait_ms: int = 0
    """How long the caller is willing to wait for messages."""
    reads: bool = False
    """Whether the call only reads: with `?read=local` any node answers it."""
    changes: bool = False
    """Whether only the leader may carry the call out, and not while it hands over."""

    def __init__(self, node: ServingNode, headers: Mapping[str, str], query_text: str) -> None:
        self.node = node
        self.headers = headers
        self.query_text = query_text

    @property
    def encrypted(self) -> bool:
        """Whether the call came over TLS."""
        return False

    @property
    def address(self) -> str:
        """The host that the call came from; "" = from inside this process, or not known."""
        transport = getattr(self.origin, "transport", None)
        peer = None if transport is None else transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def about(self, call: ApiCall, topic_key: TopicKey, params: dict[str, str]) -> None:
        """Set the call, its topic and its parameters, as the route found them."""
        self.call, self.topic_key, self.params = call, topic_key, params
        self.name = call.name

    @property
    def form(self) -> Form:
        """What the headers say of the body and of the answer."""
        found = self._form
        if found is None:
            found = self._form = form_of(self.headers)
        return found

    def take_messages(self, count: int, now_ms: int) -> None:
        """Count the messages of a send. Raises a Problem if they exceed the caller's limit."""
        self.count = count
        if self.caller.messages is not None:
            self.caller.take_messages(count, now_ms)

    async def body(self, bytes_max: int | None = None) -> bytes:
        """The whole body. A call that changes something is refused if the node has lost its
        leadership, or begun to hand it over, while the body arrived.
        """
        raw = await self._body(bytes_max or self.node.engine.limits.request_bytes_max)
        if self.changes:
            self.node.role.check()
        return raw

    @abstractmethod
    async def _body(self, size_max: int) -> bytes:
        """The whole body. Raises a Problem if it has more than `size_max` bytes."""

    async def members(self, values_max: int | None = None) -> Any:
        """The body, decoded from JSON or msgpack; {} when empty. A call that carries no messages,
        ids or receipts gives no `values_max`; its body has at most `PLAIN_BYTES_MAX` bytes.
        """
        if values_max is None:
            bytes_max = min(PLAIN_BYTES_MAX, self.node.engine.limits.request_bytes_max)
            return self.decoded(await self.body(bytes_max), None)
        return self.decoded(await self.body(), values_max)

    def decoded(self, raw: bytes, values_max: int | None) -> Any:
        """The members in a body that was read; see `members`."""
        kind = self.form.kind
        if not raw:
            return {}
        if kind == JSON:
            return read_json(raw, values_max)
        if kind == MSGPACK:
            # The parser reserves the declared length of each open container.
            return read_msgpack(raw, values_max, max(JSON_ROWS_MAX, STAGED_PARTS_MAX))
        raise Problem("unsupported", f"content type {kind!r} is not read here; use {JSON}")

    async def values(self, values_max: int | None = None) -> dict[str, Any]:
        """The members of the query and body by name, checked as the call declares them. An absent
        member has its default or None. `values_max` is that of `members`.
        """
        values = self.query_values()
        takes = None if self.call is None else self.call.takes
        if takes is not None and isinstance(takes.shape, Shape):
            members = await self.members(values_max)
            given = takes.shape.take(members, self.node.engine.limits)
            self.note(given)
            values |= given
        return values

    def query_values(self) -> dict[str, Any]:
        """The members of the query by name, checked as the call declares them.

        Undeclared members are refused. A read also accepts `read`, which the carrier evaluates.
        """
        call = self.call
        declared, needed = ((), ()) if call is None else (call.query, call.query_needed)
        given = self._query([member.name for member in declared])
        for member in needed:
            if member.name not in given:
                raise Problem("bad_request", f"{member.name} is missing", field=member.name)
        limits = self.node.engine.limits
        values = {member.name: member.take(given, limits) for member in declared}
        self.note(values)
        return values

    def note(self, values: Mapping[str, Any]) -> None:
        """Note members of a call for the audit log, if the call changes something. Ids, which may
        be many, are only counted there.
        """
        if self.call is not None and self.call.right in CHANGING:
            said = {
                name: _fact(value)
                for name, value in values.items()
                if name != "ids" and value is not None and value is not False
            }
            self.facts = {**self.facts, **said}

    def _query(self, known: list[str]) -> dict[str, str]:
        if self.reads:
            known.append(READ.name)
        out: dict[str, str] = {}
        if not self.query_text:
            return out
        try:
            given = parse_qs(self.query_text, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise Problem("bad_request", "the query is not UTF-8") from None
        given.pop(TICKET, None)
        for name, values in given.items():
            if name not in known:
                raise Problem("bad_request", f"unknown query parameter {name[:64]!a}")
            if len(values) > 1:
                # Taking one of two tags would list, or count, more than was asked for.
                raise Problem(
                    "bad_request", f"{name} is given {len(values)} times; give it once", field=name
                )
            out[name] = values[0]
        return out

    def answer(self, members: Any, status: int = 200) -> Answer:
        """An answer as JSON or msgpack, as the client asks."""
        if (self._form or self.form).packed:
            return Answer(msgpack.packb(members), MSGPACK, status)
        return Answer(orjson.dumps(members), JSON, status)

    async def durable_answer(self, members: Any, status: int = 200) -> Answer:
        """Answer once the log is durable up to its present end."""
        await self.node.durable(self.node.engine.state.position)
        return self.answer(members, status)

    def bulk_answer(self, body: bytes) -> Answer:
        """A bulk answer."""
        return Answer(body, BULK)


def _fact(value: Any) -> Fact:
    """A member's value in the audit log."""
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return " ".join(map(str, value))
    return orjson.dumps(value, default=_fact).decode()


class BufferedContext(Context):
    """A call whose body was read before."""

    def __init__(
        self, node: ServingNode, headers: Mapping[str, str], query_text: str, body: bytes
    ) -> None:
        super().__init__(node, headers, query_text)
        self.raw = body

    async def _body(self, size_max: int) -> bytes:
        if len(self.raw) > size_max:
            raise too_large(size_max)
        return self.raw


def too_large(size_max: int) -> Problem:
    """The refusal of a body of more than `size_max` bytes."""
    return Problem("too_large", f"the body of this call has at most {size_max} bytes")
