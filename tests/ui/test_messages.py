"""Messages in the browser: found, read, sent, moved, cancelled. The API is asked what happened."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker
from tests.ui.looking import Looking

HOUR = 3_600_000
BIG = '{"n": 12345678901234567890, "price": 1.10, "list": [1, {"a": null}], "empty": []}'


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """A topic with six waiting messages: half of them red, two with the key k."""
    messages = [
        {
            "body": BIG,
            "id": f"m{n}",
            "delay_ms": HOUR * (n + 1),
            "tags": ["red"] if n % 2 else ["blue"],
            **({"key": "k"} if n < 2 else {}),
        }
        for n in range(6)
    ]
    broker.post(f"/v1/topics/{topic}/messages", messages)
    return topic


def message(broker: Broker, topic: str, name: str) -> dict[str, Any]:
    """A message as the API has it."""
    found: dict[str, Any] = broker.call("GET", f"/v1/topics/{topic}/messages/{name}").json
    return found


def ids(window: Looking) -> list[str]:
    """Ids of the messages in the table."""
    return [each.inner_text() for each in window.page.locator("tbody a.id").all()]


def test_a_message_is_sent_from_its_form(broker: Broker, look: Any, topic: str) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}").press("Send a message")
    window.fill(Body='{"a": 1}', Due="+2h", Id="own", Key="k", Tags="red, blue").confirm("Send")
    window.sees("own is due")
    found = message(broker, topic, "own")
    assert (found["body"], found["key"], found["tags"]) == ('{"a": 1}', "k", ["red", "blue"])
    assert 1.9 * HOUR < found["deliver_at_ms"] - found["sent_at_ms"] <= 2.1 * HOUR


def test_filters_are_in_the_link(broker: Broker, look: Any, filled: str) -> None:
    """Each filter alone; the link of a filtered list shows the same in another window."""
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages").sees("m5")
    assert ids(window) == [f"m{n}" for n in range(6)]
    window.fill(Tag="red").press("Filter")
    expect(window.page.locator("tbody a.id")).to_have_text(["m1", "m3", "m5"])
    window.fill(Tag="", Key="k").press("Filter")
    expect(window.page.locator("tbody a.id")).to_have_text(["m0", "m1"])
    window.fill(Key="", Due_from="+90m", Due_before="+4h").press("Filter")
    expect(window.page.locator("tbody a.id")).to_have_text(["m1", "m2", "m3"])
    again: Looking = look(broker.url)
    again.page.goto(window.page.url)
    expect(again.page.locator("tbody a.id")).to_have_text(["m1", "m2", "m3"])
    window.fill(Due_from="nonsense").press("Filter").sees("nonsense is no time")
    window.refused = {400}


def test_a_page_at_a_time(broker: Broker, look: Any, topic: str) -> None:
    rows = [{"body": "x", "id": f"n{n:03}", "delay_ms": HOUR + n} for n in range(120)]
    broker.post(f"/v1/topics/{topic}/messages", rows)
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages").sees("n000")
    seen = ids(window)
    for first in ("n050", "n100"):
        window.follow("Next page").sees(first)
        seen += ids(window)
    assert seen == [row["id"] for row in rows]
    expect(window.page.get_by_role("link", name="Next page")).to_have_count(0)
    window.follow("First page").sees("n000")


def test_the_body_is_shown_when_asked_for(broker: Broker, look: Any, filled: str) -> None:
    """JSON is indented, and no digit is lost, nor is a number rewritten."""
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages")
    window.fill(Message_id="m3").press("Open").sees("Show the body")
    assert "12345678901234567890" not in window.page.content()
    window.press("Show the body")
    shown = window.page.locator("pre").inner_text()
    assert '"n": 12345678901234567890,\n' in shown
    assert '"price": 1.10,\n' in shown
    assert '"empty": []' in shown
    window.press("As it was sent")
    expect(window.page.locator("pre")).to_have_text(BIG)


def test_a_body_is_read_once(broker: Broker, look: Any, filled: str) -> None:
    """Purpose: a page of a large message costs its body once. The life is read again only when the
    message changes, since that reads the log."""
    asked: list[str] = []
    window: Looking = look(broker.url)
    window.page.on("request", lambda each: asked.append(each.url))
    window.at(f"/topics/default/{filled}/messages/m3").sees("Show the body")
    window.page.wait_for_timeout(7_500)
    asked = [each for each in asked if f"/v1/topics/{filled}/messages/m3" in each]
    assert sum("body=false" not in each for each in asked) == 1, asked
    assert len(asked) >= 3
    assert sum("life=true" in each for each in asked) <= 2
    window.press("Show the body").sees("12345678901234567890")


def test_a_body_of_bytes_and_one_with_markup(broker: Broker, look: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    name = "a/b?c#d%"
    broker.post(path, {"body_base64": "AP8gQQ==", "id": "bytes", "delay_ms": HOUR})
    broker.post(path, {"body": evil, "id": name, "key": evil, "tags": [evil], "delay_ms": HOUR})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages/bytes")
    window.press("Show the body").sees("000000  00 ff 20 41")
    window.at(f"/topics/default/{topic}/messages").follow(name).press("Show the body")
    assert window.page.locator("pre").inner_text() == evil
    assert window.page.locator("main img, main script").count() == 0
    assert quote(name, safe="") in window.page.url


def test_a_due_time_is_changed(broker: Broker, look: Any, filled: str) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages/m2")
    window.press("Change the due time").fill(Due="2031-01-02 03:04:05.678")
    window.confirm("Change it")
    # Berlin is an hour ahead of UTC then.
    window.sees("2031-01-02 03:04:05.678")
    assert message(broker, filled, "m2")["deliver_at_ms"] == 1_925_085_845_678
    window.press("Change the due time").fill(Due="now").confirm("Change it")
    window.sees("ready")
    assert message(broker, filled, "m2")["state"] == "ready"


def test_a_message_is_cancelled(broker: Broker, look: Any, filled: str) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages/m4").press("Cancel")
    window.confirm("Cancel it").sees("The message is cancelled")
    assert message(broker, filled, "m4")["state"] == "cancelled"
    window.sees("cancelled")


def test_the_life_of_a_message_is_drawn(broker: Broker, look: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "x", "id": "one"})
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000, "consumer": "tester"})["messages"]
    nack = {"receipts": [got["receipt"]], "delay_ms": HOUR, "reason": "no paper"}
    broker.post(f"{path}/nack", nack)
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages/one")
    drawn = window.page.get_by_role("img", name="Life line")
    expect(drawn).to_be_visible()
    said = drawn.get_attribute("aria-label")
    assert said is not None
    assert said.startswith("Life line: sent, then ready, then leased, then nacked")
    window.sees("no paper").sees("tester")


def test_the_life_of_a_message_goes_on_until_now(broker: Broker, look: Any, topic: str) -> None:
    """With the cause of its wait while it is ready; a due time to come is behind now."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, {"body": "x", "id": "ready"})
    broker.post(path, {"body": "x", "id": "later", "delay_ms": HOUR})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages/later")
    drawn = window.page.get_by_role("img", name="Life line")
    expect(drawn).to_have_attribute("aria-label", "Life line: sent, then now, then due")
    window.at(f"/topics/default/{topic}/messages/ready").sees("until now")
    expect(drawn).to_have_attribute("aria-label", "Life line: sent, then ready, then now")
    # A machine that is slow just then is a cause too.
    expect(drawn).to_contain_text(re.compile("no consumers|slow disk|stall"))
    row = window.page.get_by_role("region", name="Waits").locator("tbody tr").last
    expect(row).to_contain_text("no consumers")
    before = row.inner_text()
    expect(row).not_to_have_text(before)
    broker.post(f"/v1/topics/{topic}/receive", {"ids": ["ready"], "lease_ms": HOUR})
    expect(drawn).to_have_attribute(
        "aria-label", "Life line: sent, then ready, then leased, then now"
    )
    expect(row).not_to_contain_text("until now")


def test_why_a_message_is_late(broker: Broker, look: Any, topic: str) -> None:
    """The waits that an answer tells are shown, with a link to the message that held the key."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "late"})
    waits = [
        {"from_ms": 1_000, "until_ms": 61_000, "cause": "key", "held_by": "other"},
        {"from_ms": 61_000, "until_ms": 61_500, "cause": "no_consumers"},
        {"from_ms": 61_500, "until_ms": 62_500, "cause": "filtered_out"},
    ]
    told = {**message(broker, topic, "late"), "waits": waits}
    window: Looking = look(broker.url)
    window.page.route(
        f"**/v1/topics/{topic}/messages/late?*", lambda route: route.fulfill(json=told)
    )
    window.at(f"/topics/default/{topic}/messages/late").sees("Why late")
    rows = window.page.get_by_role("region", name="Waits").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("1 min")
    expect(rows.nth(0)).to_contain_text("its key is locked by another message")
    expect(rows.nth(1)).to_contain_text("nobody asks for messages")
    expect(rows.nth(2)).to_contain_text("consumers ask only for other tags or ids")
    window.refused = {404}
    window.follow("other").sees("has no message")
    assert window.page.url.endswith("/messages/other")


@pytest.mark.parametrize(
    ("action", "query", "filled_in", "state", "expected"),
    [
        ("Cancel", "tag=red", {}, "cancelled", ["m1", "m3", "m5"]),
        ("Reschedule", "key=k", {"New_due_time": "now"}, "ready", ["m0", "m1"]),
        ("Reschedule", "", {"New_due_time": "now", "Rate": "1000"}, "ready", range(6)),
    ],
)
def test_all_that_match_are_changed(
    broker: Broker,
    look: Callable[..., Looking],
    filled: str,
    action: str,
    query: str,
    filled_in: dict[str, str],
    state: str,
    expected: Any,
) -> None:
    """The dialog counts first; its job changes those, and nothing else."""
    wanted = [f"m{each}" if isinstance(each, int) else each for each in expected]
    window = look(broker.url).at(f"/topics/default/{filled}/messages?{query}").press(f"{action}…")
    window.sees("match now").fill(**filled_in)
    window.confirm(f"{action} {len(wanted)}").sees(f"{len(wanted)} done of {len(wanted)}")
    changed = [n for n in range(6) if message(broker, filled, f"m{n}")["state"] == state]
    assert [f"m{n}" for n in changed] == wanted
    (job, *_) = broker.call("GET", "/v1/jobs").json["jobs"]
    assert (job["topic"], job["action"], job["done"]) == (filled, action.lower(), len(wanted))


def test_counting_is_stopped(broker: Broker, look: Any, filled: str) -> None:
    """Method: a count without an end. After the button nobody counts, and the job can begin."""
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(json={"matched": 1, "scanned": 10, "cursor": "1.1.1"})

    window: Looking = look(broker.url)
    window.page.route(re.compile(r"messages%3Acount\?"), answer)
    window.at(f"/topics/default/{filled}/messages").press("Cancel…").sees("Counting:")
    window.press("Stop counting").sees("then stopped")
    window.page.wait_for_timeout(200)
    asked.clear()
    window.page.wait_for_timeout(1_000)
    assert asked == []
    window.confirm("Cancel all that match").sees("6 done of 6")


def test_nothing_is_changed_without_a_confirmation(broker: Broker, look: Any, filled: str) -> None:
    before = broker.call("GET", "/v1/jobs").json["jobs"]
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages").press("Cancel…")
    window.sees("match now").press("Close")
    window.at(f"/topics/default/{filled}/messages?tag=green").press("Cancel…")
    window.sees("match now")
    nothing = window.page.locator("dialog").get_by_role("button", name="Cancel 0")
    expect(nothing).to_be_disabled()
    window.page.keyboard.press("Escape")
    expect(window.page.locator("dialog")).to_have_count(0)
    assert broker.call("GET", "/v1/jobs").json["jobs"] == before
    assert broker.counts(filled)["waiting"] == 6  # type: ignore[index]


def test_what_was_counted_is_what_changes(broker: Broker, look: Any, topic: str) -> None:
    """A time such as `+1h` in the filter means what it meant when counting began, however long
    the dialog is open: messages that only a later time includes are left."""
    window: Looking = look(broker.url)
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, {"body": "x", "id": "near", "delay_ms": HOUR})
    window.at(f"/topics/default/{topic}/messages?due_to=%2B1h").press("Cancel…").sees("match now")
    broker.post(path, {"body": "x", "id": "far", "delay_ms": HOUR})
    window.page.wait_for_timeout(1_500)
    window.fill(Rate="1000").confirm("Cancel 1").sees("1 done of 1")
    near, far = message(broker, topic, "near"), message(broker, topic, "far")
    (job, *_) = broker.call("GET", "/v1/jobs").json["jobs"]
    assert near["deliver_at_ms"] < job["filter"]["due_to"] <= far["deliver_at_ms"]
    assert (near["state"], far["state"]) == ("cancelled", "waiting")


def test_a_running_job_is_stopped(broker: Broker, look: Any, filled: str) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{filled}/messages").press("Cancel…")
    window.sees("match now").fill(Rate="1").confirm("Cancel 6").sees("running")
    window.press("Stop").confirm("Stop it").sees("cancelled")
    (job, *_) = broker.call("GET", "/v1/jobs").json["jobs"]
    assert job["state"] == "cancelled"
    assert job["done"] < 6


def test_a_replaced_message_is_shown_with_its_new_body(
    broker: Broker, look: Any, topic: str
) -> None:
    """The body is read once a message, and an id may get another message meanwhile."""
    sent = {"id": "one", "delay_ms": HOUR, "body": "the old body"}
    broker.post(f"/v1/topics/{topic}/messages", sent)
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages/one")
    window.press("Show the body").sees("the old body")
    broker.post(f"/v1/topics/{topic}/messages", {**sent, "body": "the new one", "merge": "replace"})
    window.sees("the new one")


def test_a_message_named_dots_is_not_taken_for_its_topic(
    broker: Broker, look: Any, topic: str
) -> None:
    """Browsers remove `..` from paths, so a cancel of that message would delete the topic."""
    broker.post(f"/v1/topics/{topic}/messages", {"id": "..", "delay_ms": HOUR, "body": "x"})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/messages").follow("..")
    window.sees("Use the command delaylog for ...")
    assert [each for each in window.errors if "delaylog for .." not in each] == []
    window.errors.clear()
    assert broker.counts(topic)["waiting"] == 1  # type: ignore[index]
