"""The short way of a send does what the general way does, byte for byte.

Two brokers with the same history get the same calls. One sends single messages by the short way
where it can, the other always by columns. After each call their answers, refusals, logs and states
are the same; at the end a recount and a replay of the log agree, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaylog.broker.calls.turn.askers import batch_of
from delaylog.broker.calls.turn.writes import send_batch, send_parts
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import SendResult
from delaylog.broker.engine.state import FewExposure
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.contract.members import MemberError
from delaylog.contract.message_fields import pack_fields
from delaylog.storage.messages.batch import Single
from delaylog.storage.messages.rows import FEW_ROWS_MAX
from tests.broker.engine.host import HOUR, START_MS, Host
from tests.broker.engine.test_whole_queue import small_state
from tests.effort import tries

KEY = ("default", "t")
LIMITS = Limits(body_bytes_max=200, horizon_ms=400 * HOUR)
DELAYS = [0, 0, 1, 999, 1_000, 5_000, 30 * 60_000, HOUR, 30 * HOUR, 40 * HOUR, 399 * HOUR]
TIMES = [0, START_MS - HOUR, START_MS, START_MS + 40 * 60_000 - 1, START_MS + 3 * HOUR]


@st.composite
def singles(draw: st.DrawFn) -> list[Single]:
    """Messages as parsers make them; the bodies and times of some are over a limit."""
    merge = draw(st.sampled_from([None, None, "keep", "replace", "reject"]))
    fields = draw(st.sampled_from([st.none(), FIELDS]))
    delays, times, sizes = DELAYS, TIMES, [0, 1, 200]
    if draw(st.integers(0, 9)) == 7:
        delays, times, sizes = [*DELAYS, 401 * HOUR], [*TIMES, 1_600_000_000], [1, 201]
    out = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 6, FEW_ROWS_MAX]))):
        relative = draw(st.booleans())
        due_ms = draw(st.sampled_from(delays if relative else times))
        body = bytes([97 + len(out)]) * draw(st.sampled_from(sizes))
        out.append(Single(body, due_ms, relative, draw(fields), merge))
    return out


FIELDS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "é", "x" * 255]) | st.integers(0, 1 << 40).map(str),
        "key": st.sampled_from(["k", "k2", ""]),
        "tags": st.sampled_from([["red"], ["red", "blue"], []]),
        "headers": st.sampled_from([{"h": "1"}, {}]),
        "backoff": st.sampled_from([{"first_ms": 5}, {}]),
        "priority": st.sampled_from([0, 3, -1]),
        "ttl_ms": st.sampled_from([-1, 0, 1_000, 5 * HOUR]),
        "max_retry": st.sampled_from([0, 1, 65_534]),
    },
).map(pack_fields)

SETTINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "merge": st.sampled_from(["keep", "replace", "reject"]),
        "merge_leased": st.sampled_from(["keep", "successor"]),
        "ttl_ms": st.sampled_from([-1, 1_000]),
        "max_retry": st.sampled_from([0, 5]),
        "order": st.sampled_from(["time", "priority"]),
        "quota": st.fixed_dictionaries(
            {},
            optional={
                "rate": st.sampled_from([1, 3]),
                "pending": st.sampled_from([2, 20]),
                "bytes": st.sampled_from([50, 1_000]),
                "horizon_ms": st.sampled_from([1_000, 2 * HOUR]),
            },
        ),
    },
)
PLAIN_STEPS = ("pause", "purge", "flush", "checkpoint", "restart", "crash", "drop")
STEPS = st.lists(
    st.one_of(
        singles(),
        singles(),
        singles(),
        singles(),
        st.tuples(st.just("advance"), st.sampled_from([1, 999, 5_000, HOUR, 3 * HOUR])),
        st.tuples(st.just("set_back"), st.sampled_from([5_000, 2 * HOUR])),
        st.tuples(st.just("receive"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["ack", "nack"]), st.integers(1, 3)),
        st.tuples(st.just("configure"), SETTINGS),
        st.tuples(st.just("group"), st.sampled_from(["g", "h"])),
        st.tuples(st.just("free"), st.sampled_from([0, 1 << 60])),
        st.tuples(st.sampled_from(PLAIN_STEPS), st.none()),
    ),
    min_size=8,
    max_size=24,
)


class Twin:
    """One of the two brokers, as a host of calls."""

    def __init__(self, folder: Path, *, short: bool) -> None:
        self.host = Host(folder, limits=LIMITS)
        self.short = short
        assert self.host.topic
        self.free = 1 << 60
        self.held: list[Any] = []
        """Messages under lease."""

    @property
    def engine(self) -> Any:
        return self.host.engine

    @property
    def clock(self) -> Twin:
        return self

    def now_ms(self) -> int:
        return self.host.now_ms

    def free_bytes(self) -> int:
        return self.free

    def send(self, parts: list[Single]) -> Any:
        """The answer, or the refusal."""
        try:
            if self.short:
                result = send_parts(self, KEY, parts)
            else:
                now_ms = self.host.now_ms
                result = send_batch(self, KEY, batch_of(parts, now_ms), now_ms)
        except (EngineError, MemberError) as error:
            facts = getattr(error, "facts", None)
            fresh = getattr(error, "fresh", None)
            return type(error), str(error), facts, None if fresh is None else fresh.tolist()
        return answer_of(result, len(parts))

    def do(self, step: str, how: Any) -> Any:
        """Any other call, and its answer."""
        host = self.host
        if step == "receive":
            got = host.receive(how)
            self.held += got
            return got
        if step in ("ack", "nack"):
            some, self.held = self.held[:how], self.held[how:]
            return getattr(host, step)(some)
        if step == "configure":
            host.engine.put_topic("t", TopicSettings.from_dict(how), host.now_ms)
        elif step == "group":
            host.put_group(how)
        elif step == "free":
            self.free = how
        elif step == "pause":
            host.pause(paused=not host.topic.paused)
        elif step == "drop":
            host.drop_topic()
        elif how is None:
            getattr(host, step)()
        else:
            getattr(host, step)(how)
        return None

    def observed(self) -> dict[str, Any]:
        """All that a send may change, hints and caches included."""
        state = self.engine.state
        log, pile, ids, texts = state.log, state.hours.pile, state.ids, state.texts
        texts._join_few()
        keys, refs = ids._recent.columns()
        out = small_state(state, self.host.now_ms)
        out["log"] = log.end_position, b"".join(map(bytes, log._pending))
        out["ids"] = sorted(zip(keys.tolist(), refs.tolist(), strict=True))
        keys, refs = texts._recent.columns()
        out["texts"] = sorted(zip(keys.tolist(), refs.tolist(), strict=True)), texts.recent_count
        out["pile"] = pile.size_bytes
        out["tails"] = {
            hour: [
                (c.first_index, c.rows.tobytes(), bytes(c.data), c.dense, c.position, c.extra_bytes)
                for c in tail.chunks
            ]
            for hour, tail in pile._tails.items()
        }
        out["loose"] = [
            (p.rows.tobytes(), bytes(p.data), p.hours, p.starts, listed(p.order), p.position, p.tag)
            for p in pile._loose
        ]
        out["far"] = [
            (b.keys.tolist(), b.rows.tobytes(), bytes(b.data), b.positions.tolist(), b.level)
            for b in pile._far._blocks
        ]
        out["counts"] = state.hours.counts.items()
        out["exposures"] = [
            (
                each.end_position,
                each.entries
                if isinstance(each, FewExposure)
                else list(zip(*map(listed, each.entries), strict=True)),
            )
            for each in state.exposures
        ]
        out["marks"] = [getattr(state.marks, name) for name in state.marks.__slots__]
        out["series"] = state.series.sent, state.series.counts
        for topic in state.by_number.values():
            meter, bucket = topic.sent_rate, topic.send_bucket
            out[topic.name] = (
                [getattr(meter, name) for name in meter.__slots__],
                None if bucket is None else bucket.__dict__,
                (topic.used_ms, topic.send_rate),
                [(group.order, group.counts) for group in topic.groups.values()],
            )
        return out


def listed(column: Any) -> Any:
    return None if column is None else column.tolist()


def answer_of(result: SendResult, n: int) -> Any:
    rows = range(n)
    refs, due = (
        [int(column[row]) for row in rows] for column in (result.refs, result.deliver_at_ms)
    )
    return refs, due, [result.code(row) for row in rows], result.position


@contextmanager
def twins() -> Iterator[tuple[Twin, Twin]]:
    with tempfile.TemporaryDirectory() as folder:
        pair = tuple(Twin(Path(folder) / name, short=name == "few") for name in ("few", "many"))
        try:
            yield pair  # type: ignore[misc]
        finally:
            for twin in pair:
                twin.host.close()


@pytest.mark.long
@settings(max_examples=tries(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_the_short_way_is_the_general_way(steps: list[Any]) -> None:
    with twins() as (few, many):
        for step in steps:
            if isinstance(step, list):
                assert few.send(step) == many.send(step)
            else:
                assert few.do(*step) == many.do(*step)
            mine, others = few.observed(), many.observed()
            for name, value in others.items():
                assert mine[name] == value, name
        for twin in (few, many):
            twin.host.restart()
        mine, others = few.observed(), many.observed()
        for name, value in others.items():
            assert mine[name] == value, name
        assert few.host.recount() == many.host.recount()


def same(few: Twin, many: Twin, *calls: list[Single]) -> None:
    for call in calls:
        assert few.send(call) == many.send(call)
    mine, others = few.observed(), many.observed()
    for name, value in others.items():
        assert mine[name] == value, name


def test_rows_of_many_hours_stay_one_block() -> None:
    """In order or not, near or beyond the border of far hours."""
    hours = [Single(b"%d" % at, at * HOUR, True) for at in range(FEW_ROWS_MAX)]
    far = [Single(b"%d" % at, (28 + at) * HOUR, True) for at in range(FEW_ROWS_MAX)]
    with twins() as (few, many):
        same(few, many, hours, hours[::-1], far, far[::-1], hours[:2], far[9:8:-1])


def test_two_messages_of_a_turn_with_one_id_are_one() -> None:
    """The short way leaves them to the general way, which merges them."""
    with twins() as (few, many):
        same(few, many, [Single(body, 0, True, pack_fields({"id": "a"})) for body in (b"x", b"y")])
        few.host.turn()
        assert few.host.bodies() == [b"x"]


def test_a_full_disk_refuses_a_message_of_the_short_way() -> None:
    with twins() as (few, many):
        for twin in (few, many):
            twin.do("free", LIMITS.disk_reserve_bytes - 1)
        same(few, many, [Single(b"x", 0, True)])
        assert few.host.topic.sent == 0


def test_no_row_goes_below_the_hour_floor() -> None:
    with twins() as (few, many):
        for twin in (few, many):
            twin.engine.state.hour_floor = START_MS // HOUR + 2
        same(few, many, [Single(b"x", 0, True)], [Single(b"y", at * HOUR, True) for at in range(4)])


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For what most programs send, nothing of the general way runs."""
    twin = Twin(tmp_path, short=True)

    monkeypatch.setattr("delaylog.broker.calls.turn.writes.send_batch", None)
    full = pack_fields({"id": "a", "key": "k", "tags": ["t"], "priority": 3, "ttl_ms": 5})
    far = Single(b"z", 300 * HOUR, True)
    for part in ([Single(b"x", 0, True)], [Single(b"y", 5_000, True, full)], [far] * FEW_ROWS_MAX):
        twin.send(part)
    twin.do("configure", {"quota": {"rate": 100, "pending": 100, "bytes": 10_000}})
    twin.send([Single(b"x", HOUR * at, True) for at in range(FEW_ROWS_MAX)])
    assert twin.host.topic.sent == 2 * FEW_ROWS_MAX + 2
    twin.host.close()
