"""The dashboard of a cluster's nodes: each shows its own view, one that follows changes nothing."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Error, expect

from tests.broker.cluster.conftest import start_three, three  # noqa: F401
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes
from tests.ui.looking import Looking

TRIES = 3


def url_of(nodes: ThreeNodes, node: int) -> str:
    return f"http://{nodes.address(node)}"


def test_a_node_that_follows_shows_and_links(
    three: ThreeNodes,  # noqa: F811
    look: Any,
) -> None:
    sent = {"body": "x", "id": "one", "delay_ms": 3_600_000}
    assert three.call(three.leader(), "POST", "/v1/topics/t/messages?acks=all", sent).status == 200
    place = "/topics/default/t/messages/one"
    for _ in range(TRIES):
        # On a slow machine the nodes elect another leader by themselves: then it is tried again.
        leader = three.leader()
        follower = next(node for node in NODES if node != leader)
        window: Looking = look(url_of(three, follower)).at(place)
        cancel = window.page.get_by_role("button", name="Cancel", exact=True)
        there = window.page.get_by_role("link", name="Open the dashboard of the leader")
        try:
            window.sees(f"This node, {NAMES[follower]}, follows").sees("waiting")
            expect(cancel).to_have_count(0)
            expect(there).to_have_attribute("href", f"{url_of(three, leader)}/ui/#{place}")
            there.click()
            expect(cancel).to_be_visible()
        except (Error, AssertionError):
            continue
        return
    raise AssertionError(f"no node led long enough in {TRIES} tries")


def test_the_leadership_is_handed_over(
    three: ThreeNodes,  # noqa: F811
    look: Any,
) -> None:
    for _ in range(TRIES):
        leader = three.leader()
        other = next(node for node in NODES if node != leader)
        window: Looking = look(url_of(three, leader))
        window.refused = {409, 503}
        window.at("/nodes").sees("Missing voters")
        rows = window.page.get_by_role("region", name="Nodes").locator("tbody tr")
        expect(rows).to_have_count(3)
        links = [each.get_attribute("href") for each in rows.get_by_role("link").all()]
        assert links == [f"{url_of(three, node)}/ui/" for node in NODES]
        assert window.faults() == []
        window.shoot("cluster-light")
        try:
            window.press(f"Hand over to {NAMES[other]}").confirm("Hand over")
            window.sees(f"{NAMES[other]} leads")
            window.sees(f"This node, {NAMES[leader]}, follows")
            leaders = window.page.get_by_role("region", name="Leaders").locator("tbody tr")
            expect(leaders.first).to_contain_text(NAMES[other])
            expect(leaders.nth(1)).to_contain_text(NAMES[leader])
            expect(leaders.first.locator("time")).to_be_visible()
        except (Error, AssertionError):
            continue
        return
    raise AssertionError(f"no hand-over in {TRIES} tries")
