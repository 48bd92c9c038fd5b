"""Topics in the browser: found among thousands, made, changed, paused, purged, dropped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker
from tests.ui.looking import Looking

HOUR = 3_600_000


def names(window: Looking) -> list[str]:
    """Topics in the table."""
    return [each.inner_text() for each in window.page.locator("tbody td:first-child a").all()]


@pytest.fixture(scope="module")
def many(broker: Broker) -> str:
    """A namespace with 250 topics, three of which have messages."""
    for n in range(250):
        broker.call("PUT", f"/v1/ns/many/topics/t{n:03}.{'eu' if n % 2 else 'us'}", {})
    for name, count in {"t200.us": 3, "t101.eu": 2, "t007.eu": 1}.items():
        for _ in range(count):
            sent = {"body": "x", "delay_ms": HOUR}
            broker.post(f"/v1/ns/many/topics/{name}/messages", sent)
    return "many"


def test_pages_search_and_order(broker: Broker, look: Any, many: str) -> None:
    window: Looking = look(broker.url).at(f"/topics?ns={many}").sees("t000.us")
    assert len(names(window)) == 100
    window.follow("Next page").sees("t100.us").follow("Next page").sees("t249.eu")
    assert names(window) == [f"t{n:03}.{'eu' if n % 2 else 'us'}" for n in range(200, 250)]
    window.press("waiting")
    expect(window.page.locator("tbody tr:nth-child(-n+3) td:first-child a")).to_have_text(
        ["t200.us", "t101.eu", "t007.eu"]
    )
    window.follow("Next page").follow("Next page").sees("t248.us")
    window.follow("First page").sees("t200.us")
    window.page.get_by_label("Search").fill("01.e")
    expect(window.page.locator("tbody td:first-child a")).to_have_text(
        ["t101.eu", "t001.eu", "t201.eu"]
    )
    assert "q=01.e" in window.page.url
    assert "sort=waiting" in window.page.url


def test_the_search_follows_links(broker: Broker, look: Any, many: str) -> None:
    """The field shows the search of the list, also when a link has another one or none."""
    window: Looking = look(broker.url).at(f"/topics?ns={many}&q=01.e").sees("t101.eu")
    field = window.page.get_by_label("Search")
    expect(field).to_have_value("01.e")
    window.follow("Topics")
    expect(field).to_have_value("")
    window.page.go_back()
    expect(field).to_have_value("01.e")


def test_a_place_that_changes_before_the_page_listens_is_shown(broker: Broker, look: Any) -> None:
    """Its first drawing is followed at once by another place, as by a quick hand or a script."""
    window: Looking = look(broker.url)
    window.page.add_init_script(
        "new MutationObserver((_, observer) => { if (!document.querySelector('nav')) return;"
        " observer.disconnect(); location.hash = '#/topics'; })"
        ".observe(document, { childList: true, subtree: true })"
    )
    window.at("/").sees("Topics of default")


def test_a_topic_is_made_and_dropped(broker: Broker, look: Any, topic: str) -> None:
    window: Looking = look(broker.url).at("/topics").press("New topic")
    window.fill(Name=topic).confirm("Make it").sees("Load to come")
    assert broker.call("GET", f"/v1/topics/{topic}").status == 200
    window.press("Delete")
    delete = window.page.locator("dialog").get_by_role("button", name="Delete it")
    expect(delete).to_be_disabled()
    window.fill(**{"Type_the_topic's_name_to_confirm": topic}).confirm("Delete it")
    window.sees(f"{topic} is deleted")
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_a_refusal_is_shown_in_the_dialog(broker: Broker, look: Any) -> None:
    window: Looking = look(broker.url).at("/topics").press("New topic").fill(Name="a topic")
    window.refused = {400}
    window.page.locator("dialog").get_by_role("button", name="Make it").click()
    window.sees("a topic is named [A-Za-z0-9._-]{1,200}")
    expect(window.page.locator("dialog[open]")).to_have_count(1)


def test_pause_resume_and_purge(broker: Broker, look: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", [{"body": "x", "delay_ms": HOUR}] * 4)
    window: Looking = look(broker.url).at(f"/topics/default/{topic}")
    window.press("Pause").confirm("Pause").sees("Deliveries have stopped")
    assert broker.call("GET", path).json["paused"]
    window.sees("paused").press("Resume").confirm("Resume").sees("Deliveries go on")
    assert not broker.call("GET", path).json["paused"]
    window.press("Purge").fill(**{"Type_the_topic's_name_to_confirm": topic})
    window.confirm("End the messages").sees("4 messages were ended")
    assert broker.counts(topic)["waiting"] == 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("max_retry", "3", 3), ("order", '"priority"', "priority"), ("lease_ms", "null", 30_000)],
)
def test_a_setting_is_changed(
    broker: Broker, look: Any, topic: str, name: str, text: str, value: Any
) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {"lease_ms": 5_000})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}").press(f"Change {name}")
    window.fill(**{"Value,_as_JSON": "{"}).sees("{ is no JSON")
    window.fill(**{"Value,_as_JSON": text}).confirm("Change it").sees(f"{name} is changed")
    assert broker.call("GET", f"/v1/topics/{topic}").json["settings"][name] == value


def test_groups_have_counts_of_their_own(broker: Broker, look: Any, topic: str) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}").press("New group")
    window.fill(Name="mail").confirm("Make it").sees("mail gets the messages")
    assert broker.call("GET", f"/v1/topics/{topic}").json["groups"] == ["default", "mail"]
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    broker.post(f"/v1/topics/{topic}/receive", {"group": "mail", "wait_ms": 20_000})
    window.follow("mail")
    assert window.page.url.endswith("group=mail")
    leased = window.page.locator(".counts > div").filter(has_text="leased").locator("dd")
    expect(leased).to_have_text("1")
    window.page.get_by_label("Group", exact=True).select_option("default")
    expect(leased).to_have_text("0")


def test_calls_that_wait_are_counted(broker: Broker, look: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}")
    waiting = window.page.get_by_text("Calls that wait for messages:").locator("strong")
    expect(waiting).to_have_text("0")
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(broker.post, f"{path}/receive", {"wait_ms": 15_000})
        expect(waiting).to_have_text("2")
        broker.post(f"{path}/messages", [{"body": "x"}] * 2)
    expect(waiting).to_have_text("0")


def test_the_page_follows_what_happens(broker: Broker, look: Any, topic: str) -> None:
    """Purpose: a live page shows a send within seconds, by one stream and without asking again; a
    paused or hidden one has no stream, and asks for nothing.
    """
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}")
    waiting = window.page.locator(".counts > div").filter(has_text="waiting").locator("dd")
    expect(waiting).to_have_text("0")
    window.page.wait_for_timeout(3_000)
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": HOUR})
    expect(waiting).to_have_text("1")
    assert asked == []
    broker.await_metric("delaylog_streams", 1)
    window.page.keyboard.press("l")
    window.sees("Paused").page.wait_for_timeout(1_000)
    broker.await_metric("delaylog_streams", 0)
    asked.clear()
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": HOUR})
    window.page.wait_for_timeout(4_000)
    assert asked == []
    expect(waiting).to_have_text("1")
    window.page.keyboard.press("l")
    expect(waiting).to_have_text("2")
    hide = """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    window.page.evaluate(hide, True)
    window.page.wait_for_timeout(1_000)
    broker.await_metric("delaylog_streams", 0)
    asked.clear()
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": HOUR})
    window.page.wait_for_timeout(3_000)
    assert asked == []
    window.page.evaluate(hide, False)
    expect(waiting).to_have_text("3")


def test_a_topic_that_is_deleted_and_created_again_while_its_page_is_open(
    broker: Broker, look: Any, topic: str
) -> None:
    """Its old numbers go with it, and the page shows the new one without being loaded again."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "x", "delay_ms": 3_600_000})
    window: Looking = look(broker.url)
    window.refused.add(404)
    window.at(f"/topics/default/{topic}").sees("Send a message")
    broker.call("DELETE", f"{path}?force=true")
    window.sees("there is no topic")
    expect(window.page.get_by_role("heading", name="States")).to_have_count(0)
    broker.call("PUT", path, {})
    window.sees("Send a message")
    expect(window.page.get_by_role("alert")).to_have_count(0)
