"""The whole dashboard: log in, rights, keyboard, zones, calls as curl, a broker that is gone."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker, Secured
from tests.ui.conftest import ZONE
from tests.ui.looking import Looking

HOUR = 3_600_000


@pytest.fixture(scope="module")
def shop(secured: Secured) -> Secured:
    """It has the topics orders and mails, each with a message."""
    for name in ("orders", "mails"):
        sent = {"body": "secret", "id": "one", "delay_ms": HOUR}
        assert secured.call("POST", f"/v1/topics/{name}/messages", sent).status == 200
    return secured


def enter(look: Callable[..., Looking], shop: Secured, token: str, place: str = "/") -> Looking:
    window = look(shop.broker.url)
    window.refused = {401}
    window.at(place).fill(Token=token).press("Log in")
    return window


def test_log_in_and_out(shop: Secured, look: Any) -> None:
    """The page keeps no token: only the cookie, which no script can read, survives a reload."""
    token = shop.token("admin")
    window = enter(look, shop, "dlt_wrong", "/topics").sees("This did not work")
    window.fill(Token=token).press("Log in").sees("orders")
    kept = "JSON.stringify([localStorage, sessionStorage]) + document.cookie"
    assert "dlt_" not in window.page.evaluate(kept)
    assert "session" not in window.page.evaluate("document.cookie")
    window.page.reload()
    window.sees("orders").press("Log out")
    expect(window.page.get_by_label("Token")).to_be_visible()
    expect(window.page.get_by_role("navigation")).to_have_count(0)
    window.page.reload()
    expect(window.page.get_by_label("Token")).to_be_visible()


def test_changes_by_a_session_carry_its_token(shop: Secured, look: Any) -> None:
    window = enter(look, shop, shop.token("admin"), "/topics/default/orders")
    window.press("Pause").confirm("Pause").sees("Deliveries have stopped")
    assert shop.call("GET", "/v1/topics/orders").json["paused"]
    shop.call("POST", "/v1/topics/orders/resume", {})


@pytest.mark.parametrize(
    ("grants", "buttons", "missing"),
    [
        (["viewer"], [], ["Send a message", "Pause", "Purge", "Delete", "New group"]),
        (["viewer", "send:orders"], ["Send a message"], ["Pause", "Delete"]),
        (["read:orders", "change:orders"], ["Pause", "Purge"], ["Send a message", "Delete"]),
        (["read:orders", "change:mails"], [], ["Pause", "Purge"]),
        (["admin"], ["Send a message", "Pause", "Purge", "Delete", "New group"], []),
    ],
)
def test_buttons_are_those_of_the_rights(
    shop: Secured, look: Any, grants: list[str], buttons: list[str], missing: list[str]
) -> None:
    window = enter(look, shop, shop.token(*grants), "/topics/default/orders").sees("Settings")
    for name in buttons:
        expect(window.page.get_by_role("button", name=name, exact=True)).to_be_visible()
    for name in missing:
        expect(window.page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_other_topics_do_not_exist(shop: Secured, look: Any) -> None:
    """Who has no right `dashboard` begins with the topics, and sees its own only."""
    window = enter(look, shop, shop.token("read:orders")).sees("orders")
    expect(window.page.get_by_role("link", name="mails")).to_have_count(0)
    expect(window.page.get_by_role("link", name="Overview")).to_have_count(0)
    window.refused = {401, 403}
    window.at("/topics/default/mails").sees("You lack the right read on all groups")


def test_who_administers_one_topic_sees_no_list_of_all_targets(shop: Secured, look: Any) -> None:
    """It needs the right on the whole broker: the link led to a refusal."""
    for grant, links in (("admin:orders", 0), ("admin", 1)):
        window = enter(look, shop, shop.token(grant), "/topics").sees("orders")
        expect(window.page.get_by_role("link", name="Push", exact=True)).to_have_count(links)


def test_a_revoked_token_ends_the_session(shop: Secured, look: Any) -> None:
    shop.principal("leaving", "viewer")
    token = shop.call("POST", "/v1/principals/leaving/rotate", {}).json["token"]
    window = enter(look, shop, token, "/topics").sees("orders")
    assert shop.call("DELETE", "/v1/principals/leaving").status == 200
    expect(window.page.get_by_label("Token")).to_be_visible()


def test_the_keyboard_alone(broker: Broker, look: Any, topic: str) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url).at("/").sees("Busiest seconds")
    keys = window.page.keyboard
    keys.press("g")
    keys.press("t")
    expect(window.page.locator("h1")).to_have_text("Topics")
    keys.press("/")
    keys.type(topic)
    expect(window.page.locator("tbody tr")).to_have_count(1)
    keys.press("Escape")
    keys.press("?")
    window.sees("show this help")
    keys.press("Escape")
    expect(window.page.locator("dialog")).to_have_count(0)
    keys.press("g")
    keys.press("j")
    expect(window.page.locator("h1")).to_have_text("Jobs")
    # A letter in a field is a letter.
    window.at("/topics").page.get_by_label("Search").type("gl?")
    expect(window.page.get_by_label("Search")).to_have_value("gl?")
    window.sees("Live")


def test_times_in_the_viewers_zone_and_in_utc(broker: Broker, look: Any, topic: str) -> None:
    """In July Berlin is two hours ahead of UTC."""
    at = 1_909_216_800_123
    sent = {"body": "x", "id": "m", "deliver_at_ms": at}
    broker.post(f"/v1/topics/{topic}/messages", sent)
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages")
    shown = window.page.locator("tbody time").first
    expect(shown).to_contain_text("2030-07-02 12:00:00.123")
    window.page.keyboard.press("z")
    expect(shown).to_contain_text("2030-07-02 10:00:00.123")
    window.page.reload()
    expect(shown).to_contain_text("2030-07-02 10:00:00.123")


def test_the_calls_of_a_page_work_as_command_lines(broker: Broker, look: Any, topic: str) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}").press("Send a message")
    window.fill(Body="it's", Id="by-curl", Due="+1h")
    dialog = window.page.locator("dialog[open]")
    dialog.get_by_role("button", name="Copy as curl").click()
    expect(dialog.get_by_text("Copied")).to_be_visible()
    words = shlex.split(window.page.evaluate("navigator.clipboard.readText()"))
    assert words[0] == "curl"
    subprocess.run([*words, "--silent", "--fail"], check=True, timeout=20, capture_output=True)
    sent = broker.call("GET", f"/v1/topics/{topic}/messages/by-curl").json
    assert sent["body"] == "it's"
    window.press("Close").page.get_by_text("Calls of this page").click()
    listed = window.page.locator("footer li").filter(has_text="/stats")
    expect(listed.first).to_contain_text(f"GET /v1/topics/{topic}/stats")


def test_a_broker_that_is_gone_and_comes_back(
    start_broker: Callable[..., Broker], look: Any, topic: str
) -> None:
    broker = start_broker()
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url).at("/topics").sees(topic)
    broker.crash()
    window.sees("The broker does not answer. What is shown may be old.").sees(topic)
    broker.start()
    expect(window.page.get_by_text("What is shown may be old")).to_have_count(0)
    window.errors = [each for each in window.errors if "net::ERR" not in each]


def test_a_page_without_a_stream_asks_again(
    start_broker: Callable[..., Broker], look: Any, topic: str
) -> None:
    """While as many streams are open as the broker allows, here none."""
    broker = start_broker(constants={"delaylog.broker.streams.live.STREAMS_MAX": 0})
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url)
    window.refused = {429}
    window.at(f"/topics/default/{topic}").sees("Settings")
    broker.post(f"/v1/topics/{topic}/pause", {})
    expect(window.page.get_by_role("button", name="Resume", exact=True)).to_be_visible()


def test_lateness_is_drawn_over_time(broker: Broker, look: Any) -> None:
    """From the minutes that the broker has kept, at once; a minute without figures is a gap."""
    about = broker.call("GET", "/v1/overview").json
    from_ms = about["now_ms"] // 60_000 * 60_000
    bounds = about["lateness"]["bounds_ms"]
    minutes = [
        {"from_ms": from_ms - 60_000 * ago, "counts": [ago, *[0] * (len(bounds) - 1), 1]}
        for ago in range(60, 1, -1)
        if ago % 10
    ]
    told = {**about, "lateness": {"bounds_ms": bounds, "minutes": minutes}}
    window: Looking = look(broker.url)
    window.page.route("**/v1/overview?*", lambda route: route.fulfill(json=told))
    # The stream would tell of the real one.
    no_events = {"content_type": "text/event-stream", "body": ""}
    window.page.route("**/v1/live?*", lambda route: route.fulfill(**no_events))
    window.at("/").sees("Handed out, by minute and lateness")
    expect(window.page.locator(".heat rect")).to_have_count(2 * len(minutes))
    labels = window.page.locator(".heat li").all_inner_texts()
    assert (len(labels), labels[0], labels[-1]) == (len(bounds) + 1, "more", "1 ms")
    newest = datetime.fromtimestamp(minutes[-1]["from_ms"] / 1000, ZoneInfo(ZONE))
    times = [(newest - timedelta(minutes=ago)).strftime("%m-%d %H:%M") for ago in (89, 0)]
    assert window.page.locator(".heat .ends").inner_text().split("\n") == [times[0], ZONE, times[1]]
    window.page.get_by_text("The minute from").click()
    rows = window.page.get_by_role("region", name="Lateness of the last").locator("tbody tr")
    expect(rows.first).to_have_text("up to 1 ms2")
    expect(rows.last).to_have_text("more1")
    window.shoot("heat")
    assert window.faults() == []


@pytest.mark.parametrize("place", ["/topics/default/%E0%A4%A", "/%", "/topics/default/a%2"])
def test_a_malformed_link_is_no_failure(broker: Broker, look: Any, place: str) -> None:
    """Its parts stand for themselves; the menu still works."""
    window: Looking = look(broker.url)
    window.refused = {400, 404}
    window.at(place).page.locator("main h1").wait_for()
    window.follow("Topics")
    expect(window.page.get_by_role("heading", name="Topics")).to_be_visible()


def test_a_group_that_is_behind_is_on_the_overview(broker: Broker, look: Any, topic: str) -> None:
    """Also one of a topic whose default group has nothing to do; its link leads to the group."""
    broker.call("PUT", f"/v1/topics/{topic}", {})
    broker.call("PUT", f"/v1/topics/{topic}/groups/audit", {})
    broker.post(f"/v1/topics/{topic}/messages", [{"body": "x", "delay_ms": 0}] * 300)
    broker.post(f"/v1/topics/{topic}/receive", {"max": 300, "wait_ms": 20_000})
    (behind,) = (
        each
        for each in broker.call("GET", "/v1/overview").json["behind"]
        if each["topic"] == topic and each["group"] == "audit"
    )
    assert behind["ready"] == 300
    window: Looking = look(broker.url).at("/").sees("Most ready messages")
    rows = window.page.get_by_role("region", name="Groups with the most").locator("tbody tr")
    mine = rows.filter(has=window.page.get_by_role("link", name=topic, exact=True))
    expect(mine).to_contain_text(f"{topic}audit300")
    mine.get_by_role("link", name="audit").click()
    window.page.wait_for_url(f"**/topics/default/{topic}?group=audit")


def test_the_load_to_come_names_the_busiest(broker: Broker, look: Any, topic: str) -> None:
    """By the overview, for all topics: a second of 20 messages stands out."""
    rows = [{"body": "x", "delay_ms": 20 * 60_000 + n * 7_000} for n in range(5)]
    rows += [{"body": "x", "delay_ms": 10 * 60_000}] * 20
    broker.post(f"/v1/topics/{topic}/messages", rows)
    window: Looking = look(broker.url).at("/").sees("Busiest seconds")
    busiest = window.page.get_by_role("region", name="Busiest seconds").locator("tbody tr")
    about = broker.call("GET", "/v1/overview").json
    expect(busiest.first).to_contain_text(str(about["seconds"][0]["count"]))
    assert about["seconds"][0]["count"] >= 20
