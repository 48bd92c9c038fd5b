"""Request ids: unlike each other, and taken from a client only if they are harmless."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.host.audit.request_ids import accepted_request_id, make_request_id


def test_made_ids_can_be_accepted_and_differ() -> None:
    random = Random(1)
    ids = {make_request_id(random) for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) == 32 and accepted_request_id(each) == each for each in ids)


@pytest.mark.parametrize("text", ["a", "4bf92f35-77b3:4da6/1", "~" * 128])
def test_accepted(text: str) -> None:
    assert accepted_request_id(text) == text


@pytest.mark.parametrize("text", [None, "", "a b", "a\n", "é", "a\r\nSet-Cookie: x", "x" * 129])
def test_refused(text: str | None) -> None:
    assert accepted_request_id(text) is None
