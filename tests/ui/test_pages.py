"""Every page: readable for all, in light and dark, wide and narrow; pictures are kept for people.

One broker has something of each kind. A page must show it, have no serious fault of accessibility,
and fit into a narrow window without scrolling sideways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker
from tests.ui.looking import Looking

HOUR: Final = 3_600_000
TOPIC: Final = "orders.eu"
AT: Final = f"/topics/default/{TOPIC}"
PAGES: Final = {
    "overview": ("/", "Busiest seconds of the hour"),
    "topics": ("/topics", TOPIC),
    "topic": (AT, "Load to come"),
    "messages": (f"{AT}/messages", "order-7"),
    "message": (f"{AT}/messages/failed", "printer on fire"),
    "dead": (f"{AT}/dead", "printer on fire"),
    "schedules": (f"{AT}/schedules", "digest"),
    "push": (f"{AT}/push", "https://hooks.invalid/orders"),
    "all-schedules": ("/schedules", "digest"),
    "all-push": ("/push", "https://hooks.invalid/orders"),
    "claims": (f"{AT}/claims", "batch-7"),
    "jobs": ("/jobs", "reschedule"),
    "job": ("/jobs/j1", "Filter"),
    "transactions": ("/transactions", "load-7"),
    "nodes": ("/nodes", "single node"),
    "missing": ("/nowhere", "There is no such page"),
}
FORMS: Final[dict[str, tuple[Any, int, tuple[str, ...]]]] = {
    "light": ("light", 1_280, ()),
    "dark": ("dark", 1_280, ("color-contrast", "link-in-text-block")),
    "narrow": ("light", 390, ("scrollable-region-focusable", "target-size")),
}
"""The colour scheme, the width of the window, and the rules that it concerns (none: all)."""


@pytest.fixture(scope="module")
def shown(broker: Broker) -> Broker:
    """Has topics, messages in most states, a schedule, a target, a claim, a job, a transaction."""
    path = f"/v1/topics/{TOPIC}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    for name in ("orders.us", "mails", "reports"):
        broker.call("PUT", f"/v1/topics/{name}", {})
    broker.call("PUT", f"{path}/groups/audit", {})
    for name, kept in {"failed": 1, "claimed": 2, "held": 3}.items():
        broker.post(f"{path}/messages", {"body": "{}", "id": name, "priority": kept})
    for name in ("failed", "held"):
        wanted = {"wait_ms": 20_000, "ids": [name], "consumer": "printer-1"}
        (got,) = broker.post(f"{path}/receive", wanted)["messages"]
        if name == "failed":
            nack = {"receipts": [got["receipt"]], "reason": "printer on fire"}
            broker.post(f"{path}/nack", nack)
    broker.post(f"{path}/claims/batch-7", {"max": 1, "lease_ms": HOUR})
    rows = [
        {
            "body": '{"total": 12.50}',
            "id": f"order-{n}",
            "delay_ms": 60_000 + n * n * 90_000,
            "key": f"customer-{n % 3}",
            "tags": ["paper", "large"] if n % 2 else ["paper"],
        }
        for n in range(30)
    ]
    broker.post(f"{path}/messages", rows)
    broker.post("/v1/topics/mails/messages", [{"body": "x"}, {"body": "y"}])
    cron = {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "body": "digest"}
    broker.call("PUT", f"{path}/schedules/digest", cron)
    broker.call("PUT", f"{path}/groups/audit/target", {"url": "https://hooks.invalid/orders"})
    body = {"filter": {"tag": "large"}, "delay_ms": 5 * HOUR, "rate": 1_000}
    assert broker.call("POST", f"{path}/messages:reschedule", body).status == 202
    broker.post("/v1/transactions", {"transaction": "load-7"})
    return broker


@pytest.mark.parametrize("name", PAGES)
def test_a_page(shown: Broker, look: Callable[..., Looking], name: str) -> None:
    place, text = PAGES[name]
    window = look(shown.url).at(place).sees(text)
    expect(window.page.locator("main h1")).to_have_count(1)
    expect(window.page.get_by_text("Reading…")).to_have_count(0)
    for form, (scheme, width, rules) in FORMS.items():
        window.page.emulate_media(color_scheme=scheme)
        window.page.set_viewport_size({"width": width, "height": 900})
        assert window.faults(*rules) == [], form
        wide = window.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{form}: {wide} pixels beside the window"
        window.shoot(f"{name}-{form}")


@pytest.mark.parametrize(
    ("place", "button"),
    [
        (AT, "Send a message"),
        (AT, "Purge"),
        (f"{AT}/messages", "Cancel…"),
        (f"{AT}/schedules", "New schedule"),
        ("/nodes", "Keys"),
    ],
)
def test_a_dialog(shown: Broker, look: Callable[..., Looking], place: str, button: str) -> None:
    """Its fields have labels, its first field has the focus, Escape closes it."""
    window = look(shown.url, color_scheme="dark").at(place).press(button)
    dialog = window.page.locator("dialog[open]")
    expect(dialog).to_be_visible()
    window.page.wait_for_timeout(600)
    assert window.faults() == []
    assert dialog.evaluate("it => it.contains(document.activeElement)")
    window.shoot(f"dialog-{button.rstrip('…').lower().replace(' ', '-')}")
    window.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
