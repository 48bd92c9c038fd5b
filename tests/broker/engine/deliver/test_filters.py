"""Tag filters: the mask misses nothing that matches, and the exact answer is that of sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.ready.tag_filter import TAG_BYTES_MAX, TAGS_MAX, TagFilter
from delaylog.storage.messages.rows import tag_bits, tags_mask

NAMES = [f"t{number}" for number in range(12)] + ["T1", "t", "t1 ", "größe", "日本"]
TAGS = st.one_of(
    st.sampled_from(NAMES),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1).filter(
        lambda text: len(text.encode()) <= TAG_BYTES_MAX
    ),
)
MESSAGES = st.lists(st.lists(TAGS, max_size=TAGS_MAX), max_size=30)


def blobs_of(messages: Sequence[Sequence[str]]) -> list[bytes]:
    """Tags as they are stored."""
    return ["\n".join(tags).encode() for tags in messages]


def masks_of(blobs: Sequence[bytes]) -> Any:
    return np.array([tags_mask(blob) for blob in blobs], np.uint64)


def parsed(tags: Sequence[str], mode: str = "any") -> TagFilter:
    found = TagFilter.parse(list(tags), mode)
    assert found is not None
    return found


@given(
    messages=MESSAGES,
    wanted=st.lists(TAGS, min_size=1, max_size=5),
    mode=st.sampled_from(["any", "all"]),
)
def test_exact_is_the_answer_of_sets_and_the_mask_never_misses(
    messages: list[list[str]], wanted: list[str], mode: str
) -> None:
    tag_filter = parsed(wanted, mode)
    blobs = blobs_of(messages)
    if mode == "any":
        expected = [bool(set(tags) & set(wanted)) for tags in messages]
    else:
        expected = [set(tags) >= set(wanted) for tags in messages]
    exact = tag_filter.exact_match(blobs)
    assert exact.dtype == np.bool_
    assert exact.tolist() == expected
    near = tag_filter.mask_match(masks_of(blobs))
    assert near.dtype == np.bool_
    assert len(near) == len(blobs)
    assert not (exact & ~near).any()


@pytest.mark.parametrize("mode", ["any", "all"])
def test_the_mask_of_every_pair_of_many_tags_holds_and_tells_most_others(mode: str) -> None:
    tags = [f"tag-{number}" for number in range(300)]
    masks = masks_of(blobs_of([[tag] for tag in tags]))
    wrong = 0
    for at, tag in enumerate(tags):
        near = parsed([tag], mode).mask_match(masks)
        assert near[at]
        wrong += int(near.sum()) - 1
    assert wrong < 300 * 300 // 1_000, "four bits of 64 tell nearly all tags apart"


def test_all_asks_for_every_bit_at_once_and_any_for_one_tag_whole() -> None:
    one, two = tag_bits(b"one"), tag_bits(b"two")
    masks = np.array([0, one, two, one | two, 2**64 - 1], np.uint64)
    assert parsed(["one", "two"]).mask_match(masks).tolist() == [False, True, True, True, True]
    both = parsed(["one", "two"], "all")
    assert both.mask_match(masks).tolist() == [False, False, False, True, True]
    assert parsed(["one"]).mask_match(masks[:0]).tolist() == []


def test_a_message_without_tags_never_matches() -> None:
    for mode in ("any", "all"):
        tag_filter = parsed(["a"], mode)
        found = tag_filter.exact_match([b"", b"a", b"aa", b"b\na"])
        assert found.tolist() == [False, True, False, True]
        assert tag_filter.exact_match([]).tolist() == []


def test_filters_are_values() -> None:
    """Waiters and cursors are kept by filter: the same wish is the same key."""
    assert parsed(["b", "a", "a"]) == parsed(["a", "b"])
    assert len({parsed(["a", "b"]), parsed(["b", "a"]), parsed(["a", "b"], "all")}) == 2
    with pytest.raises(FrozenInstanceError):
        parsed(["a"]).mode = "all"  # type: ignore[misc]


def test_no_tags_are_no_filter() -> None:
    assert TagFilter.parse(None) is None
    assert TagFilter.parse([], "all") is None


@pytest.mark.parametrize(
    "tags",
    [
        [""],
        ["x" * (TAG_BYTES_MAX + 1)],
        ["é" * (TAG_BYTES_MAX // 2) + "x"],
        ["a\nb"],
        ["\ud800"],
        [f"t{number}" for number in range(TAGS_MAX + 1)],
    ],
)
def test_what_breaks_a_limit_names_its_field(tags: list[str]) -> None:
    with pytest.raises(BadRequestError) as caught:
        TagFilter.parse(tags)
    assert caught.value.field == "tags"


def test_the_limits_themselves_are_allowed() -> None:
    tags = [f"{number:02}".ljust(TAG_BYTES_MAX, "x") for number in range(TAGS_MAX)]
    assert parsed(tags, "all").exact_match(["\n".join(tags).encode()]).tolist() == [True]
