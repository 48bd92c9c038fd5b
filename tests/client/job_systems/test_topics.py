"""Topics of queues: legal names stay, others become legal and stay apart."""

from __future__ import annotations

import re

import pytest

from delaylog.client.job_systems.topics import NAME_CHARS_MAX, id_of, tags_of, topic_of


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
