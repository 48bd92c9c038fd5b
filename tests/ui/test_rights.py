"""What pages show to callers with few rights: what they allow, and in words what they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Secured
from tests.ui.looking import Looking

HOUR: Final = 3_600_000
AT: Final = "/topics/default/orders"
LACKS: Final = "You lack the right read on"


@pytest.fixture(scope="module")
def shop(secured: Secured) -> Secured:
    """A topic with two groups, one without a default group, one without any; each has a message."""
    for name, default in {"orders": True, "named": False, "bare": False}.items():
        path = f"/v1/topics/{name}"
        secured.call("PUT", path, {"default_group": default, "max_retry": 0})
        if name != "bare":
            secured.call("PUT", f"{path}/groups/mail", {})
        sent = {"body": "secret", "id": "one", "delay_ms": HOUR}
        assert secured.call("POST", f"{path}/messages", sent).status == 200
    return secured


def enter(look: Callable[..., Looking], shop: Secured, place: str, *grants: str) -> Looking:
    window = look(shop.broker.url)
    window.refused = {401, 403}
    token = shop.token(*grants)
    window.at(place).fill(Token=token).press("Log in").page.locator("header").wait_for()
    return window


def no_alerts(window: Looking) -> None:
    expect(window.page.get_by_text("Reading…")).to_have_count(0)
    expect(window.page.get_by_role("alert")).to_have_count(0)


def test_one_group_of_a_topic(shop: Secured, look: Any) -> None:
    """Found from the list of topics, read on each of its pages, and nothing of other groups."""
    window = enter(look, shop, "/topics", "read:orders:mail").follow("orders")
    window.sees("Load to come").sees(f"{LACKS} all groups: settings and schedules are not shown")
    waiting = window.page.locator(".counts > div").filter(has_text="waiting").locator("dd")
    expect(waiting).to_have_text("1")
    no_alerts(window)
    assert "default" not in window.page.locator("div[aria-label=Groups]").inner_text()
    window.follow("Messages").follow("one").sees("Life")
    assert window.page.url.endswith("group=mail")
    no_alerts(window)
    window.follow("Dead letters").sees("No failure is known")
    no_alerts(window)
    window.follow("Claims").sees("There are no open claims. What you may not read is left out.")
    no_alerts(window)
    # Deep links without a group too.
    window.at(f"{AT}/messages").sees("1 shown")
    no_alerts(window)
    for hidden in ("Schedules", "Push"):
        tabs = window.page.get_by_role("navigation", name="Topic")
        expect(tabs.get_by_role("link", name=hidden)).to_have_count(0)


def test_a_change_in_one_group(shop: Secured, look: Any) -> None:
    """Who may change one group purges that one; what would change all groups is not offered."""
    path = "/v1/topics/purged"
    shop.call("PUT", path, {})
    shop.call("PUT", f"{path}/groups/mail", {})
    shop.call("POST", f"{path}/messages", {"body": "x", "delay_ms": HOUR})
    window = enter(look, shop, "/topics/default/purged", "read,change:purged:mail")
    window.press("Purge").fill(**{"Type_the_topic's_name_to_confirm": "purged"})
    window.confirm("End the messages").sees("1 messages were ended")
    counts = {
        each["group"]: each["counts"]["waiting"]
        for each in shop.call("GET", f"{path}/groups").json["groups"]
    }
    assert counts == {"default": 1, "mail": 0}
    expect(window.page.get_by_role("button", name="Pause")).to_have_count(0)


@pytest.mark.parametrize(
    ("grant", "buttons"),
    [
        ("send:orders", {"Send a message"}),
        ("change:orders", {"Pause", "Resume", "Purge"}),
        ("receive:orders:mail", set()),
        ("metrics", set()),
    ],
)
def test_no_right_to_read(shop: Secured, look: Any, grant: str, buttons: set[str]) -> None:
    """The page says which right is missing, and offers what is allowed."""
    window = enter(look, shop, AT, grant)
    window.sees(f"{LACKS} group default: its numbers are not shown")
    window.sees(f"{LACKS} all groups: settings and schedules are not shown")
    expect(window.page.get_by_text("There are no groups")).to_have_count(0)
    for name in ("Send a message", "Pause", "Resume", "Purge", "Delete", "New group"):
        shown = window.page.get_by_role("button", name=name, exact=True)
        expect(shown).to_have_count(1 if name in buttons else 0)
    if "orders" in grant:
        window.at("/topics").sees("You may not read all of these topics").follow("orders")
        window.page.wait_for_url(f"**{AT}")


def test_grants_with_patterns_open_a_topic_by_its_name(shop: Secured, look: Any) -> None:
    window = enter(look, shop, "/topics", "read:*:mail", "read:ord*:mail")
    window.sees("default/ord*").page.get_by_label("Search").fill("orders")
    window.follow("orders").sees("Load to come")
    no_alerts(window)


@pytest.mark.parametrize("place", ["/jobs", "/transactions", "/schedules", "/topics"])
def test_an_empty_list_says_that_it_may_be_a_part(shop: Secured, look: Any, place: str) -> None:
    window = enter(look, shop, place, "read:nothing")
    window.sees("What you may not read is left out")


@pytest.mark.parametrize("page", ["", "/messages", "/messages/one", "/dead", "/push"])
def test_a_topic_without_a_default_group(shop: Secured, look: Any, page: str) -> None:
    """Its pages show the first group that it has: for all callers they were refusals."""
    window = enter(look, shop, f"/topics/default/named{page}", "admin")
    window.page.get_by_role("link", name="Claims").wait_for()
    no_alerts(window)
    link = window.page.get_by_role("link", name="Messages", exact=True)
    expect(link).to_have_attribute("href", "#/topics/default/named/messages?group=mail")


def test_a_topic_without_any_group(shop: Secured, look: Any) -> None:
    """Its page makes the first one."""
    window = enter(look, shop, "/topics/default/bare", "admin").sees("There are no groups")
    no_alerts(window)
    window.press("New group").fill(Name="first").confirm("Make it").sees("States")
    no_alerts(window)
    assert shop.call("GET", "/v1/topics/bare").json["groups"] == ["first"]


def test_the_list_of_topics_says_what_it_counts(shop: Secured, look: Any) -> None:
    """A topic without a default group has no numbers there, which is not zero."""
    window = enter(look, shop, "/topics", "admin").sees("Numbers are those of default groups")
    for name, numbers in {
        "named": ["–", "–", "–", "–", "1"],
        "orders": ["1", "0", "0", "0", "2"],
    }.items():
        cells = window.page.locator("tbody tr").filter(has_text=name).locator("td:nth-child(n+3)")
        expect(cells).to_have_text(numbers)
