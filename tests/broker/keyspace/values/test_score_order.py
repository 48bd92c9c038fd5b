"""The order of a sorted set against a plain sorted list, step by step."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.keyspace.values import sorted_set
from delaylog.broker.keyspace.values.sorted_set import ScoreOrder

MEMBERS = [b"", b"a", b"a\0", b"b", *(b"m%d" % number for number in range(60))]
SCORES = st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.5, -3.0, float("inf"), float("-inf")])
FEW = st.dictionaries(st.sampled_from(MEMBERS), SCORES)
MANY = st.lists(SCORES, min_size=len(MEMBERS), max_size=len(MEMBERS)).map(
    lambda scores: dict(zip(MEMBERS, scores, strict=True))
)
RANKS = st.integers(0, 70)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(MEMBERS), SCORES),
        st.tuples(st.just("put"), st.sampled_from(MEMBERS), SCORES),
        st.tuples(st.just("take"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("pop"), st.booleans()),
        st.tuples(st.just("delete"), RANKS, RANKS),
        st.tuples(st.just("ask"), RANKS, RANKS, st.integers(0, 8), st.integers(0, 20)),
        st.tuples(st.just("find"), SCORES, st.sampled_from(MEMBERS)),
    ),
    max_size=120,
)


LONG_RUNS = {"_RUN_ENTRIES_MAX": sorted_set._RUN_ENTRIES_MAX}
SHORT_RUNS = {
    "_RUN_ENTRIES_MAX": 8,
    "_RUN_ENTRIES": 4,
    "_RUN_ENTRIES_MIN": 2,
    "_FEW_RUNS": 3,
}


@pytest.mark.parametrize("sizes", [LONG_RUNS, SHORT_RUNS], ids=["one run", "short runs"])
@given(first=st.one_of(FEW, MANY), steps=STEPS)
def test_it_is_a_sorted_list(
    sizes: dict[str, int], first: dict[bytes, float], steps: list[tuple]
) -> None:
    with mock.patch.multiple(sorted_set, **sizes):
        _check_steps(first, steps)


def _check_steps(first: dict[bytes, float], steps: list[tuple]) -> None:
    scores = dict(first)
    order = ScoreOrder((score, member) for member, score in first.items())
    for name, *given_ in steps:
        model = sorted((score, member) for member, score in scores.items())
        if name == "put":
            member, score = given_
            if member in scores:
                order.remove(scores[member], member)
            scores[member] = score
            order.add(score, member)
        elif name == "take" and given_[0] in scores:
            order.remove(scores.pop(given_[0]), given_[0])
        elif name == "pop" and model:
            entry = order.pop(greatest=given_[0])
            assert entry == model[-1 if given_[0] else 0]
            del scores[entry[1]]
        elif name == "delete":
            start, stop = sorted(min(rank, len(model)) for rank in given_)
            if start < stop:
                order.delete(start, stop)
            for _, member in model[start:stop]:
                del scores[member]
        elif name == "ask":
            start, stop, offset, most = given_
            ranks = min(start, len(model)), min(stop, len(model))
            asked = model[start:stop]
            assert order.walk(*ranks) == asked
            assert order.walk(*ranks, offset, most) == asked[offset : offset + most]
            asked.reverse()
            assert order.walk_back(*ranks) == asked
            assert order.walk_back(*ranks, offset, most) == asked[offset : offset + most]
        elif name == "find":
            rank = order.find(*given_)
            assert rank == sum(entry < tuple(given_) for entry in model)
            assert order.following(tuple(given_), 1, 9) == model[rank + 1 : rank + 10]
            more = [
                (score, member + b"+") for score, member in model[:3] if member + b"+" not in scores
            ]
            order.update(more)
            scores |= {member: score for score, member in more}
        assert list(order) == sorted((score, member) for member, score in scores.items())
        assert len(order) == len(scores)


def test_more_is_asked_for_than_a_machine_counts() -> None:
    order = ScoreOrder([(1.0, b"a"), (2.0, b"b")])
    assert order.following((1.0, b""), 1, 2**63 - 1) == [(2.0, b"b")]
    assert order.following((1.0, b""), 2**63 - 1, 1) == []
