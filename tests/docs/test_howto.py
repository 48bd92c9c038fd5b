"""The examples of the longest page are run as they stand, like those in `test_examples`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaylog
from tests.docs.examples import LONGEST, named, stories
from tests.docs.pages import Story
from tests.docs.stage import play


@pytest.mark.parametrize("story", stories(LONGEST), ids=named)
def test_examples_do_what_their_page_says(story: Story, tmp_path: Path) -> None:
    play(story, tmp_path)


def test_a_payment_that_is_reported_again_is_no_refund(tmp_path: Path) -> None:
    """When the broker has forgotten the timer: after the commit, and if a process died before."""
    (text,) = (
        each.text
        for story in stories(LONGEST)
        for each in story.examples
        if "def paid" in each.text
    )
    definitions, _, calls = text.partition("\n\n\nordered(17)")
    assert calls
    with delaylog.open(tmp_path, clock=delaylog.ManualClock()) as client:
        shop: dict[str, Any] = {
            "client": client,
            "timedelta": timedelta,
            "Message": delaylog.Message,
        }
        exec(definitions, shop)
        for number in (17, 18, 19):
            shop["ordered"](number)
        assert shop["paid"](17)
        assert client.timer("order 18", topic="unpaid").cancel() == "cancelled"
        client.timer("order 19", topic="unpaid").fire()
        (message,) = client.receive("unpaid")
        assert not shop["paid"](19)
        shop["not_paid"](message)
        message.ack()

        client.drop_topic("unpaid", force=True)
        assert client.timer("order 17", topic="unpaid").state() == "unset"
        assert [shop["paid"](number) for number in (17, 18, 19)] == [True, True, False]
