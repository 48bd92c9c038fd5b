"""Topics of queues: legal names stay, others become legal and stay apart."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from delaylog.client import AnswerLost, NotFound, NotReached
from delaylog.client.errors import api_error
from delaylog.client.job_systems.tasks import NAME_CHARS_MAX, declare_topic, topic_of


@pytest.mark.parametrize("queue", ["celery", "a.B-c_9", "x" * NAME_CHARS_MAX])
def test_a_legal_name_is_the_topic(queue: str) -> None:
    assert topic_of(queue) == queue


def test_other_names_become_legal_and_stay_apart() -> None:
    queues = ["a@b", "a/b", "", "ä", "x" * (NAME_CHARS_MAX + 1), "x" * (NAME_CHARS_MAX + 2)]
    topics = [topic_of(queue) for queue in queues]
    assert len(set(topics)) == len(queues)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", topic) for topic in topics)
    assert topics[0].startswith("a-b.")


class Away:
    """A client whose broker is away for some calls, and then has no such topic."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.put: list[str] = []

    def get_topic(self, topic: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        raise api_error(404, {"code": "unknown", "detail": topic})

    def put_topic(self, topic: str, settings: object) -> None:
        assert settings is not None
        if self.failures:
            raise self.failures.pop(0)
        self.put.append(topic)


def test_a_topic_is_made_once_the_broker_is_back() -> None:
    """So the first task that a process sends is as patient as later ones."""
    away = Away(NotReached("refused"), AnswerLost("cut off"), NotReached("refused"))
    declare_topic(cast(Any, away), "celery", for_s=30)
    assert away.put == ["celery"]
    late = Away(NotFound(404, {"code": "unknown"}, None), AnswerLost("the answer to the put"))
    declare_topic(cast(Any, late), "celery", for_s=30)
    assert late.put == ["celery"]


def test_it_is_not_repeated_longer_than_that() -> None:
    with pytest.raises(NotReached):
        declare_topic(cast(Any, Away(NotReached("refused"))), "celery")
