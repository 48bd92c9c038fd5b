"""When a message comes again: the pages have the defaults of the code, and a broker keeps them."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

import delaylog
from delaylog.broker.engine.topics.settings import Backoff

DOCS: Final = Path(__file__).parents[2] / "docs"


def test_the_settings_of_a_topic_show_the_whole_default() -> None:
    (row,) = (
        line
        for line in (DOCS / "HTTP.md").read_text().splitlines()
        if line.startswith("| `backoff` | `{")
    )
    numbers = [float(number) for number in re.findall(r"[\d.]+", row.split("|")[2])]
    default = Backoff()
    assert numbers == [default.first_ms, default.max_ms, default.factor, default.jitter]


def test_a_message_comes_again_its_backoff_after_the_end_of_a_lease(tmp_path: Path) -> None:
    """The shortest wait is the backoff less its jitter, from the end of the lease on."""
    clock = delaylog.ManualClock()
    default = Backoff()
    with delaylog.open(tmp_path, clock=clock, fsync="never") as broker:
        broker.send("mails", "x")
        for attempt in (1, 2, 3):
            (message,) = broker.receive("mails", lease=timedelta(seconds=1))
            assert message.attempts == attempt
            longest_ms = default.first_ms * default.factor ** (attempt - 1)
            clock.advance(timedelta(milliseconds=1_000))
            assert broker.receive("mails") == []
            clock.advance(timedelta(milliseconds=longest_ms * (1 - default.jitter) - 1))
            assert broker.receive("mails") == []
            clock.advance(timedelta(milliseconds=longest_ms * default.jitter + 1))


@pytest.mark.parametrize("page", ["TUTORIAL.md", "SDK.md"])
def test_no_page_says_that_the_end_of_a_lease_is_enough(page: str) -> None:
    text = " ".join((DOCS / page).read_text().split())
    ends = re.findall(r"again when (?:the|its) lease (?:ends|expires)\.", text)
    assert ends == []
