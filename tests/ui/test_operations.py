"""Dead letters, schedules, push targets and transactions in the browser, asserted by the API."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.broker.conftest import Broker
from tests.ui.looking import Looking

HOUR = 3_600_000


@pytest.fixture
def dead(broker: Broker, topic: str) -> str:
    """A topic with four dead letters: three for want of paper, one without a reason."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    broker.post(f"{path}/messages", [{"body": "x", "id": f"d{n}"} for n in range(4)])
    got = broker.post(f"{path}/receive", {"max": 4, "wait_ms": 20_000})["messages"]
    receipts = {each["id"]: each["receipt"] for each in got}
    broker.post(f"{path}/nack", {"receipts": [receipts.pop("d3")]})
    broker.post(f"{path}/nack", {"receipts": [*receipts.values()], "reason": "no paper"})
    assert broker.counts(topic)["dead"] == 4  # type: ignore[index]
    return topic


def states(broker: Broker, topic: str) -> list[str]:
    found = (broker.call("GET", f"/v1/topics/{topic}/messages/d{n}").json for n in range(4))
    return [each["state"] for each in found]


def test_dead_letters_by_reason(broker: Broker, look: Any, dead: str) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{dead}/dead").sees("no paper")
    counts = window.page.get_by_role("region", name="Reasons").locator("tbody tr")
    expect(counts).to_have_count(2)
    expect(counts.first).to_contain_text("no paper")
    expect(counts.first).to_contain_text("3")
    window.press("no reason given")
    letters = window.page.get_by_role("region", name="Messages").locator("tbody a.id")
    expect(letters).to_have_text(["d3"])
    # The link has the choice.
    again: Looking = look(broker.url)
    again.page.goto(window.page.url)
    expect(again.page.locator("tbody a.id")).to_have_text(["d3"])


def test_dead_letters_by_kind(broker: Broker, look: Any, topic: str) -> None:
    """Texts that differ in numbers are one row, which selects its letters; its texts are a press
    away, and the dialog acts on what is selected.
    """
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    said = {f"v{n}": f"ValueError: cannot parse {n}" for n in range(3)} | {"k": "KeyError: 1"}
    broker.post(f"{path}/messages", [{"body": "x", "id": name} for name in said])
    asked = {"wait_ms": 20_000, "max": 4, "ids": [*said]}
    for got in broker.post(f"{path}/receive", asked)["messages"]:
        broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "reason": said[got["id"]]})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/dead").sees("KeyError: 1")
    counts = window.page.get_by_role("region", name="Reasons").locator("tbody tr")
    letters = window.page.get_by_role("region", name="Messages").locator("tbody a.id")
    expect(counts).to_have_count(2)
    expect(letters).to_have_count(4)
    window.press("ValueError: cannot parse #")
    expect(letters).to_have_text(["v0", "v1", "v2"])
    window.press("Exact texts")
    expect(counts).to_have_count(3)
    window.press("ValueError: cannot parse 1")
    expect(letters).to_have_text(["v1"])
    window.press("Exact texts")
    expect(counts).to_have_count(2)
    expect(letters).to_have_text(["v0", "v1", "v2"])
    window.press("Replay these…").sees("reason prefix ValueError: cannot parse")
    window.press("Replay 3").sees("has begun")


def test_long_reasons_fit_the_window(broker: Broker, look: Any, topic: str) -> None:
    """A reason has up to 1,024 bytes, maybe without a blank; buttons and counts stay in sight."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    broker.post(f"{path}/messages", {"body": "x", "id": "one"})
    asked = {"wait_ms": 20_000, "consumer": "tester"}
    receipts = [each["receipt"] for each in broker.post(f"{path}/receive", asked)["messages"]]
    broker.post(f"{path}/nack", {"receipts": receipts, "reason": "W" * 1_024})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/dead").sees("WWW")
    for name in ("Reasons of the last failures", "Messages"):
        table = window.page.get_by_role("region", name=name, exact=True)
        assert table.evaluate("each => each.scrollWidth <= each.clientWidth"), name
    window.follow("one").sees("Failures")
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_failures_outlive_the_log(broker: Broker, look: Any, dead: str) -> None:
    """The log goes after two checkpoints; who failed and why is shown nevertheless."""
    told = broker.call("GET", f"/v1/topics/{dead}/messages/d0?life=true").json
    told |= {"life": told["life"][:1], "life_complete": False}
    told["failures"][0] |= {"consumer": "tester", "address": "192.0.2.1"}
    window: Looking = look(broker.url)
    window.page.route(f"**/v1/topics/{dead}/messages/d0?*", lambda route: route.fulfill(json=told))
    # The stream would tell of the real one.
    no_events = {"content_type": "text/event-stream", "body": ""}
    window.page.route("**/v1/live?*", lambda route: route.fulfill(**no_events))
    window.at(f"/topics/default/{dead}/messages/d0").sees("Failures")
    listed = window.page.get_by_role("region", name="Failures")
    for each in ("attempt 1", "cause nack", "reason no paper", "consumer tester", "192.0.2.1"):
        expect(listed).to_contain_text(each)


def test_only_the_group_and_the_reason_shown_are_replayed(
    broker: Broker, look: Any, topic: str
) -> None:
    """Purpose: letters of another group, and those that failed otherwise, stay dead. The dialog
    names both before anything happens."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    broker.call("PUT", f"{path}/groups/mail", {})
    broker.post(f"{path}/messages", [{"body": "x", "id": f"d{n}"} for n in range(3)])
    for group in ("default", "mail"):
        asked = {"max": 3, "wait_ms": 20_000, "group": group}
        for got in broker.post(f"{path}/receive", asked)["messages"]:
            why = {"reason": "no paper"} if got["id"] != "d2" else {}
            broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "group": group, **why})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/dead?group=mail")
    for reason, wanted, count in (("no paper", "no paper", 2), ("no reason given", "none", 1)):
        window.press(reason).press("Replay these…")
        window.sees(f"state dead, group mail, cause nack, reason {wanted}").sees("match now")
        window.fill(New_due_time="+1h").confirm(f"Replay {count}").sees(f"{count} done of {count}")
        (job, *_) = broker.call("GET", "/v1/jobs").json["jobs"]
        assert (job["filter"]["group"], job["done"]) == ("mail", count)
        window.at(f"/topics/default/{topic}/dead?group=mail").sees("By reason")
    counts = broker.call("GET", f"{path}/stats?group=mail").json["counts"]
    assert (counts["dead"], counts["waiting"]) == (0, 3)
    assert broker.counts(topic)["dead"] == 3  # type: ignore[index]


def test_bodies_and_reasons_need_the_right_bodies(secured: Any, look: Any) -> None:
    """Reasons may quote the message."""
    path = "/v1/topics/quoted"
    secured.call("PUT", path, {"max_retry": 0})
    secured.call("POST", f"{path}/messages", {"body": "secret-body", "id": "d"})
    (got,) = secured.call("POST", f"{path}/receive", {"wait_ms": 20_000}).json["messages"]
    nack = {"receipts": [got["receipt"]], "reason": "secret-reason"}
    secured.call("POST", f"{path}/nack", nack)
    for right, shown in (("read", False), ("read,bodies", True)):
        window: Looking = look(secured.broker.url).at("/topics/default/quoted/dead")
        window.refused = {401}
        window.fill(Token=secured.token(f"{right}:quoted")).press("Log in").sees("Letters")
        window.sees("secret-reason" if shown else "reasons need the right bodies")
        assert ("secret-reason" in window.page.content()) == shown
        window.follow("d").sees("Show the body" if shown else "You lack the right bodies")
        window.page.locator(".steps").first.wait_for()
        assert ("secret-reason" in window.page.content()) == shown
        assert shown or "secret-body" not in window.page.content()


def test_one_is_replayed_at_a_time(broker: Broker, look: Any, dead: str) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{dead}/dead").press("Replay d1")
    window.fill(Due="+1h").confirm("Replay").sees("It is due again")
    assert states(broker, dead) == ["dead", "waiting", "dead", "dead"]


def test_what_ends_in_all_groups_says_so(broker: Broker, look: Any, dead: str) -> None:
    """Removing the dead letter of one group ends the message in the others, whatever its state."""
    path = f"/v1/topics/{dead}"
    broker.call("PUT", f"{path}/groups/mail", {})
    broker.post(f"{path}/messages", {"body": "x", "id": "two", "delay_ms": 0})
    asked = {"group": "mail", "wait_ms": 20_000}
    (got,) = broker.post(f"{path}/receive", asked)["messages"]
    broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "group": "mail"})
    window: Looking = look(broker.url).at(f"/topics/default/{dead}/messages/two?group=mail")
    window.press("Replay").sees("in all groups where it is dead").press("Close").press("Remove")
    window.sees("It ends in all groups, also where it is leased or dead").confirm("Remove it")
    window.sees("cancelled")
    assert broker.call("GET", f"{path}/messages/two").json["state"] == "cancelled"


@pytest.mark.parametrize(
    ("button", "verb", "state"),
    [("Replay all…", "Replay 4", "ready"), ("Remove all…", "Cancel 4", "cancelled")],
)
def test_all_at_a_rate(
    broker: Broker, look: Any, dead: str, button: str, verb: str, state: str
) -> None:
    window: Looking = look(broker.url).at(f"/topics/default/{dead}/dead").press(button)
    window.sees("match now").fill(Rate="500").confirm(verb).sees("4 done of 4")
    assert states(broker, dead) == [state] * 4
    assert broker.call("GET", "/v1/jobs").json["jobs"][0]["rate"] == 500


def test_a_schedule_from_its_making_to_its_end(broker: Broker, look: Any, topic: str) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    path = f"/v1/topics/{topic}/schedules/digest"
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/schedules")
    window.press("New schedule").fill(Name="digest", Body="news", When="30 2 * * *")
    # Before it is made: what it would do, or why it cannot be.
    window.sees("It would fire:")
    window.refused = {400}
    window.fill(When="61 2 * * *").sees("This did not work")
    window.fill(When="30 2 * * *").sees("It would fire:")
    window.confirm("Make it").sees("digest: ")
    made = broker.call("GET", path).json
    assert (made["cron"], made["zone"], made["body"]) == ("30 2 * * *", "Europe/Berlin", "news")
    window.press("Next firings of digest")
    firings = window.page.get_by_role("region", name="Next firings").locator("tbody tr")
    expect(firings).to_have_count(10)
    expect(firings.first).to_contain_text("T02:30:00")
    window.press("Pause digest").fill(Note="holidays").confirm("Pause").sees("holidays")
    assert broker.call("GET", path).json["state"] == "paused"
    window.press("Resume digest").confirm("Resume").sees("digest is running")
    assert broker.call("GET", path).json["state"] == "running"
    window.press("Run now: digest").confirm("Run now").sees("is sent")
    assert broker.call("GET", path).json["n"] == 1
    assert broker.counts(topic)["ready"] == 1  # type: ignore[index]
    window.press("Delete digest").confirm("Delete it").sees("digest is deleted")
    assert broker.call("GET", path).status == 404


def test_a_push_target_is_stopped_and_started(broker: Broker, look: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}/groups/default/target"
    broker.call("PUT", path, {"url": "https://hooks.invalid/orders"})
    window: Looking = look(broker.url).at(f"/topics/default/{topic}/push").sees("closed")
    window.press("Stop pushing").confirm("Stop pushing").sees("disabled by operator")
    assert broker.call("GET", path).json["state"] == "disabled"
    window.press("Push again").confirm("Push again").sees("closed")
    assert broker.call("GET", path).json["state"] == "closed"


def test_a_transaction_is_aborted(broker: Broker, look: Any, topic: str) -> None:
    broker.post("/v1/transactions", {"transaction": topic})
    window: Looking = look(broker.url).at("/transactions").press(f"Abort {topic}")
    window.confirm("Abort it").sees(f"{topic} is aborted")
    assert broker.call("GET", f"/v1/transactions/{topic}").json["state"] == "aborted"
