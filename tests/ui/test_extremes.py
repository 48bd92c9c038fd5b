"""Names as long as they may be, texts that turn the direction of writing, and how people set their
browsers: a window of 320 pixels (or 640 at 200 %), forced colours, no motion, the keyboard alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker
from tests.ui.looking import Looking

HOUR: Final = 3_600_000
TOPIC: Final = "t" * 200
TURNED: Final = "مرحبا שלום <script>window.ran = 1</script> \u202eback"
"""Right to left, with markup, and with a character that reverses what is behind it."""
AT: Final = f"/topics/default/{TOPIC}"
TURNED_AT: Final = f"{AT}/messages/{quote(TURNED, safe='')}"
PLACES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topic": AT,
    "messages": f"{AT}/messages",
    "message": f"{AT}/messages/{'i' * 255}",
    "turned": TURNED_AT,
    "dead": f"{AT}/dead",
    "schedules": f"{AT}/schedules",
    "push": f"{AT}/push",
    "claims": f"{AT}/claims",
    "jobs": "/jobs",
    "job": "/jobs/j1",
    "all-schedules": "/schedules",
    "all-push": "/push",
    "transactions": "/transactions",
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "320": {"viewport": {"width": 320, "height": 700}},
    "zoomed": {"viewport": {"width": 640, "height": 450}, "device_scale_factor": 2},
    "forced": {"forced_colors": "active", "reduced_motion": "reduce", "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def long(broker: Broker) -> Broker:
    """It has one topic with something of each kind, all with long or turned names."""
    path = f"/v1/topics/{TOPIC}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    assert broker.call("PUT", f"{path}/groups/{'g' * 200}", {}).status == 201
    tags = [TURNED[:20], "x" * 64]
    later = {"id": "i" * 255, "key": TURNED, "tags": tags, "headers": {"h" * 60: TURNED}}
    broker.post(f"{path}/messages", {"body": TURNED, "delay_ms": HOUR, **later})
    broker.post(f"{path}/messages", {"body": "x", "id": TURNED})
    wanted = {"wait_ms": 20_000, "consumer": TURNED}
    (got,) = broker.post(f"{path}/receive", wanted)["messages"]
    reason = f"{TURNED} {'w' * 300}"
    broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "reason": reason})
    cron = {"cron": "0 9 * * 1-5", "zone": "America/Argentina/ComodRivadavia", "body": "x"}
    assert broker.call("PUT", f"{path}/schedules/{'s' * 100}", cron).status == 201
    url = {"url": f"https://hooks.invalid/{'u' * 300}"}
    assert broker.call("PUT", f"{path}/groups/{'g' * 200}/target", url).status == 201
    assert broker.call("POST", f"{path}/claims/{'c' * 100}", {"max": 1}).status == 200
    job = {"filter": {"tag": tags[0]}, "delay_ms": 5 * HOUR}
    assert broker.call("POST", f"{path}/messages:reschedule", job).status == 202
    broker.post("/v1/transactions", {"transaction": "y" * 100})
    return broker


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_page_fits(long: Broker, look: Callable[..., Looking], settings: str) -> None:
    """It does not scroll sideways, has no serious fault, and runs nothing of what it shows."""
    window = look(long.url, **SETTINGS[settings])
    for name, place in PLACES.items():
        window.at(place).page.locator("main h1").wait_for()
        expect(window.page.get_by_text("Reading…")).to_have_count(0)
        wide = window.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name}: {wide} pixels beside the window"
        assert window.faults("target-size", "scrollable-region-focusable") == []
        assert window.page.evaluate("window.ran") is None
        window.shoot(f"{name}-{settings}")


def test_a_turned_text_turns_nothing_else(long: Broker, look: Callable[..., Looking]) -> None:
    """The details behind a consumer's name are written from left to right."""
    window = look(long.url).at(TURNED_AT)
    behind = window.page.locator(".steps li", has_text="consumer").first.locator(".detail").last
    expect(behind).to_contain_text("node 0")
    label, value = behind.evaluate(
        """it => {
            const range = document.createRange();
            range.selectNode(it.firstChild);
            return [range, it.querySelector("b")].map((each) => each.getBoundingClientRect().x);
        }"""
    )
    assert label < value


def test_forced_colours_show_the_present_page(long: Broker, look: Callable[..., Looking]) -> None:
    """These make the colour of each border visible, so that only its link may have one."""
    window = look(long.url, forced_colors="active").at(f"{AT}/dead").sees("By reason")
    lined = "all => all.filter(it => getComputedStyle(it).borderBottomWidth !== '0px').length"
    assert window.page.locator(".tabs a").evaluate_all(lined) == 1
    assert window.page.locator(".menu a").evaluate_all(lined) == 0


@pytest.mark.parametrize("leave", ["Escape", "Enter"])
def test_a_dialog_gives_the_focus_back(
    long: Broker, look: Callable[..., Looking], leave: str
) -> None:
    """However it is left by keyboard: the next Tab goes on from its button."""
    window = look(long.url).at(AT)
    button = window.page.get_by_role("button", name="Send a message")
    button.focus()
    window.page.keyboard.press("Enter")
    dialog = window.page.locator("dialog[open]")
    expect(dialog.get_by_label("Body")).to_be_focused()
    if leave == "Enter":
        dialog.get_by_role("button", name="Close").focus()
    window.page.keyboard.press(leave)
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
