"""The members of objects that frames and checkpoints store.

A program refuses an object with a member that it does not know, so the rows here are part of the
format, as the layouts are.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import pytest

from delaylog.broker.engine.hold import Hold
from delaylog.broker.engine.push.targets import Health, Target
from delaylog.broker.engine.schedules.schedule import Rules, Timing
from delaylog.broker.engine.topics.settings import Backoff, Quota, RateLimit, TopicSettings
from delaylog.replication.configuration import Configuration

LEVEL_4: Final[dict[type[Any], str]] = {
    TopicSettings: (
        "order aging_ms merge merge_leased ttl_ms max_retry lease_ms ended_keep_ms dead_keep_ms "
        "dead_expired backoff rate_limit quota slots default_group"
    ),
    Backoff: "first_ms max_ms factor jitter",
    RateLimit: "per_second burst",
    Quota: "rate pending bytes horizon_ms",
    Timing: "cron interval_ms rrule zone gap fold start_ms end_ms count",
    Rules: "jitter_ms catch_up catch_up_window_ms overlap",
    Target: "url secrets mode timeout_ms concurrency per_second",
    Health: "disabled open_until_ms turns throttled_until_ms failing_since_ms reason",
    Configuration: "voters outgoing learners removed version cluster contacts",
    Hold: "since_ms note",
}


@pytest.mark.parametrize("kind", LEVEL_4, ids=lambda kind: kind.__name__)
def test_a_stored_object_has_the_members_of_its_level(kind: type[Any]) -> None:
    names = kind._fields if issubclass(kind, tuple) else [each.name for each in fields(kind)]
    assert sorted(names) == sorted(LEVEL_4[kind].split()), (
        f"older programs cannot read another member of {kind.__name__}: write it only in a log of "
        "a new feature level (docs/FORMATS.md#how-formats-change), and name it here"
    )
