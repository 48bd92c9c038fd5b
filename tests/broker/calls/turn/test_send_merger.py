"""Sends of one turn go as one batch, and what is refused is refused one by one.

The merger runs over a real engine; a host of our own stands for the node, so that what is merged
is exactly what a test sends in one turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.calls.turn.askers import Part
from delaylog.broker.calls.turn.sends import PART_BYTES_MAX, SendMerger
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.errors import DiskFullRefusal, NotLeadingError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.send.quotas import QuotaError
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.host.background import TurnShares
from delaylog.broker.host.log_commits import Completion
from delaylog.replication.leader import Acks
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.messages.batch import MessageBatch, Single, decode_send, encode_send
from tests.waiting import until

NOW_MS = 450_000 * 3_600_000
KEY = ("default", "t")
QUOTAS = {"rate": {"rate": 5}, "pending": {"pending": 50}}
"""Both let fifty messages through at once."""


class Stub:
    """What the merger needs of a node; frames are durable at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.housekeeping.crowded = self.crowded  # type: ignore[method-assign]
        self.clock = self
        self.role = self
        self.turns = TurnShares(time.monotonic)
        self.asked: list[tuple[int, Acks | None]] = []
        """(messages so far, acks) of each frame."""
        self.frames = 0
        self.free = 1 << 60
        self.wait_error: BaseException | None = None
        self.away: NotLeadingError | None = None
        self.room_bytes: int | None = None
        """How much may be sent before others have to wait; None = as much as they like."""
        self.opened: asyncio.Event | None = None

    def now_ms(self) -> int:
        return NOW_MS

    def free_bytes(self) -> int:
        return self.free

    def appended(self) -> None:
        self.frames += 1

    def crowded(self, *, large: bool = False) -> bool:
        return self.room_bytes is not None and self.log_bytes > self.room_bytes

    @property
    def log_bytes(self) -> int:
        return self.engine.state.log.end_position

    async def room(self) -> None:
        """Wait until there is room, as all others do."""
        assert self.opened is not None
        while self.crowded():
            await self.opened.wait()

    def check(self) -> None:
        if self.away is not None:
            raise self.away

    def when_safe(self, _position: int, acks: Acks | None, call: Completion) -> None:
        self.asked.append((self.frames, acks))
        # No frame is safe in the turn that appends it.
        asyncio.get_running_loop().call_soon(call, self.wait_error)

    def send(self, *parts: Part, acks: tuple[Acks | None, ...] = ()) -> list[Any]:
        """Send in one turn; 0 or the error of each."""
        asked = acks or (None,) * len(parts)
        answers = self.answers(*zip(parts, asked, strict=True))
        return [each if isinstance(each, Exception) else 0 for each in answers]

    def answers(self, *parts: tuple[Part, Acks | None]) -> list[Any]:
        """Send in one turn; the answer or the error of each."""

        async def main() -> list[Any]:
            merger = SendMerger(self)  # type: ignore[arg-type]
            sends = [merger.send(KEY, *each) for each in parts]
            return await asyncio.gather(*sends, return_exceptions=True)

        return asyncio.run(main())

    def configure(self, **quota: int) -> None:
        settings = TopicSettings.from_dict({"quota": quota})
        self.engine.put_topic("t", settings, NOW_MS)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    yield from stubs(tmp_path, Limits(request_bytes_max=1_000))


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Stub]:
    yield from stubs(tmp_path, Limits())


def stubs(tmp_path: Path, limits: Limits) -> Iterator[Stub]:
    folder = str(tmp_path / "data")
    engine = Engine(OsFileSystem(), folder, Setup(random=Random(7), limits=limits), now_ms=NOW_MS)
    yield Stub(engine)
    engine.close()


def plain(count: int, size: int = 1) -> list[Single]:
    return [Single(b"x" * size, 0, True) for _ in range(count)]


def bulk(*ids: bytes, **more: Any) -> MessageBatch:
    """A batch of messages with these ids; an empty one is none."""
    columns = {"n": len(ids), "delay_ms": 0, "body_size": 1, "bodies": b"x" * len(ids)}
    if any(ids):
        columns |= {"id": b"".join(ids), "id_size": np.array([len(id_) for id_ in ids])}
    return decode_send(encode_send(columns | more), rows_max=1_000)


def test_batches_of_a_turn_are_a_frame_for_each_shape(stub: Stub) -> None:
    """Each caller finds its own rows."""
    sent = [bulk(b"", b""), bulk(b"a"), bulk(b""), bulk(b"b", b"a", b"c"), bulk(b"a", merge="keep")]
    answers = stub.answers(*((part, None) for part in sent))
    assert stub.frames == 4
    own = [result.part(first, part.n) for (result, first), part in zip(answers, sent, strict=True)]
    assert [len(each.refs) for each in own] == [2, 1, 1, 3, 1]
    assert [[each.code(row) for row in range(len(each.refs))] for each in own] == [
        [0, 0],
        [0],
        [0],
        [0, 1, 0],
        [1],
    ]
    (first,) = own[1].refs.tolist()
    assert [own[3].refs.tolist()[1], *own[4].refs.tolist()] == [first, first]
    refs = [ref for each in own for ref in each.refs.tolist()]
    assert len(set(refs)) == len(refs) - 2


@pytest.mark.parametrize("quota", QUOTAS)
def test_a_quota_takes_whole_batches(stub: Stub, quota: str) -> None:
    """One that is too large for what is left is refused whole; a smaller one behind it comes in."""
    stub.configure(**QUOTAS[quota])
    assert stub.send(*plain(40)) == [0] * 40
    answers = stub.send(bulk(*[b""] * 8), bulk(*[b""] * 8), bulk(b"", b""), bulk(b""))
    assert [each == 0 for each in answers] == [True, False, True, False]
    assert isinstance(answers[1], QuotaError)


def test_a_batch_that_repeats_ids_needs_no_quota(stub: Stub) -> None:
    stub.configure(pending=3)
    assert stub.send(bulk(b"a", b"b", b"c")) == [0]
    answers = stub.send(bulk(b"c", b"d"), bulk(b"a", b"b"), bulk(b"e"))
    assert [each == 0 for each in answers] == [False, True, False]


def test_a_batch_with_a_mistake_harms_no_other(stub: Stub) -> None:
    """It is found before any body is copied, and is no question of quotas."""
    stub.configure(pending=3)
    answers = stub.send(bulk(b"a", b"b"), bulk(b"c", b"~d"), bulk(b"e"), bulk(b"f"), bulk(b"~"))
    assert [each == 0 for each in answers] == [True, False, True, False, False]
    assert answers[1].item == 1, "the row of its own body"
    assert isinstance(answers[3], QuotaError)
    assert answers[4].item == 0


def test_a_turn_is_a_frame_for_each_acks(stub: Stub) -> None:
    """Who asks for the same goes together, whatever stands between, but for the first one."""
    alike = (None, Acks.ALL, None, Acks.LEADER, Acks.ALL)
    assert stub.send(*plain(5), acks=alike) == [0] * 5
    assert stub.asked == [(1, None), (2, Acks.ALL), (3, None), (4, Acks.LEADER)]


def test_a_node_that_hands_over_takes_nothing(stub: Stub) -> None:
    """ReceiveRequest when the frame is made, not when the call came; each caller is told."""
    stub.away = NotLeadingError("not now")
    assert stub.send(*plain(3)) == [stub.away] * 3
    assert stub.frames == 0


def test_a_turn_is_one_frame_behind_who_is_alone(stub: Stub) -> None:
    """The first one has nobody to wait for; the others come while it is under way."""
    assert stub.send(*plain(50)) == [0] * 50
    assert stub.frames == 2


def test_one_after_the_other_each_is_alone(stub: Stub) -> None:
    """Nobody waits for another turn of the loop, a refused one changes nothing."""

    async def main() -> list[int]:
        merger = SendMerger(stub)  # type: ignore[arg-type]
        frames = []
        for part in (bulk(b"a"), bulk(b"~"), bulk(b"b"), *plain(2)):
            sending = asyncio.ensure_future(merger.send(KEY, part))
            await asyncio.sleep(0)
            frames.append(stub.frames)
            await asyncio.gather(sending, return_exceptions=True)
        return frames

    assert asyncio.run(main()) == [1, 1, 2, 3, 4]


def test_a_wait_that_fails_is_told_to_all(stub: Stub) -> None:
    stub.wait_error = ConnectionError("no longer the leader")
    assert stub.send(*plain(3)) == [stub.wait_error] * 3


@pytest.mark.parametrize("room", [0, 1, 3, 10, 49])
@pytest.mark.parametrize("quota", QUOTAS)
def test_a_quota_takes_what_it_has_room_for(stub: Stub, quota: str, room: int) -> None:
    """The first ones come in, the others are refused: none for its neighbours' sake."""
    stub.configure(**QUOTAS[quota])
    assert stub.send(*plain(50 - room)) == [0] * (50 - room)
    stub.frames = 0
    answers = stub.send(*plain(60))
    assert answers[:room] == [0] * room
    assert all(isinstance(each, QuotaError) for each in answers[room:])
    assert all(each.facts["quota"] == quota for each in answers[room:])
    # Halves of halves, not one by one.
    assert stub.frames <= 6


@pytest.mark.parametrize("quota", QUOTAS)
def test_who_repeats_an_id_is_answered_among_the_refused(stub: Stub, quota: str) -> None:
    """A quota refuses what would be new, and nobody beside it."""

    def named(*ids: int) -> list[Single]:
        return [Single(b"x", 0, True, {"id": b"%d" % id_}) for id_ in ids]

    stub.configure(**QUOTAS[quota])
    assert stub.send(*named(*range(50))) == [0] * 50
    stub.frames = 0
    answers = stub.send(*named(60, *range(40), 61), *plain(9), *named(60, 49))
    good = [*range(1, 41), len(answers) - 1]
    assert [at for at, each in enumerate(answers) if each == 0] == good
    assert all(each.facts["quota"] == quota for each in answers if each)
    assert stub.frames <= 3


@pytest.mark.parametrize(("merge", "code"), [("keep", 1), ("reject", 3)])
def test_a_repeat_does_not_go_before_what_it_repeats(stub: Stub, merge: str, code: int) -> None:
    """Where a quota has room for one, behind a send that is alone; others are refused."""
    stub.configure(pending=2)
    named = [Single(b"x", 0, True, {"id": b"i"}, merge)] * 2
    other = Single(b"x", 0, True, None, merge)
    sent = [other, named[0], other, named[1], other]
    answers = stub.answers(*((part, None) for part in sent))
    _, (first, at), refused, (repeat, behind), last = answers
    assert first.part(at, 1).code(0) == 0
    assert repeat.part(behind, 1).code(0) == code
    assert isinstance(refused, QuotaError)
    assert isinstance(last, QuotaError)


def test_only_who_asks_for_too_much_is_refused(stub: Stub) -> None:
    stub.configure(horizon_ms=1_000, bytes=100)
    far, large = Single(b"x", 2_000, True), Single(b"x" * 200, 0, True)
    sent = [*plain(3), far, *plain(2), large, *plain(4)]
    answers = stub.send(*sent)
    assert [answers[3].facts["quota"], answers[6].facts["quota"]] == ["horizon_ms", "bytes"]
    assert answers.count(0) == 9


def test_a_full_disk_refuses_all_at_once(stub: Stub) -> None:
    stub.free = 0
    answers = stub.send(*plain(50))
    assert {type(each) for each in answers} == {DiskFullRefusal}


def test_a_frame_is_no_more_than_a_request_may_be(stub: Stub) -> None:
    """Bodies of many connections together may be more than any frame holds."""
    assert stub.send(*plain(10, 300)) == [0] * 10
    assert stub.frames == 4


def test_a_large_part_is_not_joined(roomy: Stub) -> None:
    """A join copies every body: what is large goes by itself, and small ones as far as they fit."""
    half = PART_BYTES_MAX // 2 + 1
    sent = [bulk(b"", bodies=b"x" * half, body_size=half) for _ in range(12)]
    sent.append(bulk(b"", b"", bodies=b"x" * 2 * half, body_size=half))
    answers = roomy.answers(*((part, None) for part in sent))
    together = [len(result.refs) for result, _ in answers]
    assert together == [1] + [7] * 7 + [4] * 4 + [2]
    assert roomy.frames == 4


def test_who_waited_for_room_takes_no_more_than_there_is(roomy: Stub) -> None:
    """All who wait go on in one turn."""

    async def main() -> int:
        roomy.opened = asyncio.Event()
        merger = SendMerger(roomy)  # type: ignore[arg-type]
        roomy.room_bytes = roomy.log_bytes - 1
        part = bulk(b"", bodies=b"x" * 10_000, body_size=10_000)
        tasks = [asyncio.ensure_future(merger.send(KEY, part)) for _ in range(50)]
        await asyncio.sleep(0)
        begun = roomy.log_bytes
        roomy.room_bytes = begun + 25_000
        roomy.opened.set()
        roomy.opened = asyncio.Event()
        await until(lambda: roomy.log_bytes > begun + 25_000)
        await asyncio.sleep(0.01)
        taken = roomy.log_bytes - begun
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return taken

    assert 25_000 < asyncio.run(main()) < 45_000


def test_of_many_who_come_again_together_none_is_alone(stub: Stub) -> None:
    """All were answered at once, so nothing is under way when the first one comes again."""

    async def main() -> list[int]:
        merger = SendMerger(stub)  # type: ignore[arg-type]
        frames = []
        for count in (50, 50, 50, 1, 1):
            stub.frames = 0
            await asyncio.gather(*(merger.send(KEY, part) for part in plain(count)))
            frames.append(stub.frames)
        return frames

    assert asyncio.run(main()) == [2, 1, 1, 1, 1]
