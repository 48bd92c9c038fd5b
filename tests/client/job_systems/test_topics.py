"""Topics of queues: legal names stay, others become legal and stay apart."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from delaylog.client import AnswerLost, NotFound, NotReached
from delaylog.client.errors import api_error
from delaylog.client.job_systems.topics import (
    NAME_CHARS_MAX,
    declare_topic,
    id_of,
    tags_of,
    topic_of,
)


@pytest.mark.parametrize("queue", ["celery", "a.B-c_9", "x" * NAME_CHARS_MAX])
def test_a_legal_name_is_the_topic(queue: str) -> None:
    assert topic_of(queue) == queue


def test_other_names_become_legal_and_stay_apart() -> None:
    queues = ["a@b", "a/b", "", "ä", "x" * (NAME_CHARS_MAX + 1), "x" * (NAME_CHARS_MAX + 2)]
    topics = [topic_of(queue) for queue in queues]
    assert len(set(topics)) == len(queues)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", topic) for topic in topics)
    assert topics[0].startswith("a-b.")


@pytest.mark.parametrize("task_id", ["17", "ä" * 127])
def test_a_task_id_is_a_message_id(task_id: str) -> None:
    assert id_of(task_id) == task_id


@pytest.mark.parametrize("task_id", ["", "~1", "a\nb", "x" * 256, "ä" * 128, None, 17])
def test_a_task_id_that_cannot_be_one_is_left_out(task_id: object) -> None:
    assert id_of(task_id) is None


def test_the_name_of_a_task_is_a_tag_if_it_can_be_one() -> None:
    assert tags_of("app.add") == ["app.add"]
    assert [tags_of(name) for name in ("", "a\nb", "x" * 65, None)] == [[]] * 4


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
