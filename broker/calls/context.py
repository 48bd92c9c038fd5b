"""What a handler works with: one call, read and decoded once, and the node behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import msgpack
import orjson

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.forms.structure import PLAIN_BYTES_MAX, check_json, check_msgpack
from delaylog.broker.calls.problems import Problem, no_memory
from delaylog.broker.calls.shapes import READ
from delaylog.broker.calls.singles import SingleMerger
from delaylog.broker.node import Node
from delaylog.broker.waiters import TopicKey
from delaylog.storage.members import Member

BULK: Final = "application/vnd.delaylog.batch"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
_NO_MEMORY: Final = "Not enough memory"
"""How orjson says it, by the same exception as all that is wrong with a body."""


class Context(ABC):
    """One call."""

    __slots__ = (
        "_kind",
        "changes",
        "headers",
        "merger",
        "node",
        "params",
        "query_text",
        "reads",
        "topic_key",
    )

    def __init__(
        self, node: Node, merger: SingleMerger, headers: Mapping[str, str], query_text: str
    ) -> None:
        self.node = node
        self.merger = merger
        self.headers = headers
        self.query_text = query_text
        self.params: dict[str, str] = {}
        self.topic_key: TopicKey = ("default", "")
        self._kind: str | None = None
        self.reads = False
        """Whether the call only looks at messages and topics: any node may answer it."""
        self.changes = False
        """Whether it is one that only the leader carries out, and not while it hands over."""

    @property
    def content_type(self) -> str:
        """Media type of the body, JSON when absent; no text: any web page may send that."""
        kind = self._kind
        if kind is None:
            raw = self.headers.get("Content-Type", JSON)
            kind = raw if raw == JSON else raw.partition(";")[0].strip().lower()
            self._kind = kind = kind or JSON
        return kind

    @property
    def accepts_bulk(self) -> bool:
        """Whether the answer shall be a bulk body."""
        return BULK in self.headers.get("Accept", "")

    @property
    def packed(self) -> bool:
        """Whether the answer shall be msgpack."""
        accept = self.headers.get("Accept")
        if accept is None or accept == "*/*":
            return self.content_type == MSGPACK
        return MSGPACK in accept

    async def body(self, bytes_max: int | None = None) -> bytes:
        """The whole body. What changes something is refused if that may not be any more once it is
        here.
        """
        raw = await self._body(bytes_max or self.node.engine.limits.request_bytes_max)
        if self.changes:
            self.node.standing.check()
        return raw

    @abstractmethod
    async def _body(self, size_max: int) -> bytes:
        """The whole body. Raises a Problem if it has more bytes."""

    async def members(self, values_max: int | None = None) -> Any:
        """The body as JSON or msgpack; {} when empty. Without a number of values it is one that
        carries no messages, ids or receipts, and small.
        """
        kind = self.content_type
        limits = self.node.engine.limits
        if values_max is None:
            raw = await self.body(min(PLAIN_BYTES_MAX, limits.request_bytes_max))
        else:
            raw = await self.body()
        if not raw:
            return {}
        if kind == JSON:
            if values_max is not None:
                check_json(raw, values_max)
            try:
                return orjson.loads(raw)
            except MemoryError:
                raise no_memory() from None
            except orjson.JSONDecodeError as error:
                if error.msg.startswith(_NO_MEMORY):
                    raise no_memory() from None
                raise Problem("bad_request", f"the body is not JSON: {error}") from None
        if kind == MSGPACK:
            if values_max is not None:
                check_msgpack(raw, values_max)
            # The parser reserves the declared length of each open container.
            length_max = max(limits.json_rows_max, limits.staged_parts_max)
            try:
                return msgpack.unpackb(
                    raw,
                    raw=False,
                    strict_map_key=True,
                    max_array_len=min(length_max, len(raw)),
                    max_map_len=min(length_max, len(raw)),
                )
            except MemoryError:
                raise no_memory() from None
            except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
                raise Problem("bad_request", f"the body is not msgpack: {error}") from None
        raise Problem("unsupported", f"content type {kind!r} is not read here; use {JSON}")

    def query(self, *declared: Member[Any]) -> dict[str, str]:
        """Query parameters; unknown ones are refused. Whose state is read was settled before."""
        known = [member.name for member in declared]
        if self.reads:
            known.append(READ.name)
        out = {}
        try:
            given = parse_qs(self.query_text, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise Problem("bad_request", "the query is not UTF-8") from None
        for name, values in given.items():
            if name not in known:
                raise Problem("bad_request", f"unknown query parameter {name[:64]!a}")
            out[name] = values[-1]
        return out

    def answer(self, members: Any, status: int = 200) -> Answer:
        """An answer in the form the caller reads."""
        if self.packed:
            return Answer(msgpack.packb(members), MSGPACK, status)
        return Answer(orjson.dumps(members), JSON, status)

    def bulk_answer(self, body: bytes) -> Answer:
        """A bulk answer."""
        return Answer(body, BULK)


def too_large(size_max: int) -> Problem:
    """The refusal of a body of more bytes."""
    return Problem("too_large", f"the body of this call has at most {size_max} bytes")
