"""The page of an embedded broker, on a clock that the test moves: thirty days pass in a moment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

import delaylog
from tests.ui.looking import Looking


def test_thirty_days_pass(look: Any, tmp_path: Path) -> None:
    clock = delaylog.ManualClock()
    with delaylog.open(tmp_path / "data", clock=clock, fsync="never") as broker:
        broker.send(
            "reminders", "pay the rent", id="rent", delay=timedelta(milliseconds=30 * 86_400_000)
        )
        url = broker.serve_ui()
        window: Looking = look(url.removesuffix("/ui/"))
        window.at("/topics/default/reminders/messages/rent")
        # Its clock stands still, so the distance is exact, and stays so.
        distance = window.page.locator("dd time .far").first
        expect(distance).to_have_text("in 30 d")
        window.page.wait_for_timeout(3_000)
        expect(distance).to_have_text("in 30 d")
        clock.advance(days=29)
        expect(distance).to_have_text("in 1 d")
        clock.advance(days=1)
        expect(window.page.locator(".bar .state")).to_contain_text("ready")
        # And what is changed there is changed here.
        window.press("Cancel").confirm("Cancel it").sees("The message is cancelled")
        assert broker.receive("reminders") == []
        window.refused = {404}
        window.at("/topics/default/reminders/push").sees("There is nothing here")
        # A page that still looks would miss the broker.
        window.page.close()
