"""The dashboard of a cluster's nodes: each shows its own view, one that follows changes nothing."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.broker.cluster.conftest import start_three, three  # noqa: F401
from tests.broker.cluster.three_nodes import NAMES, NODES, ThreeNodes
from tests.ui.looking import Looking


def url_of(nodes: ThreeNodes, node: int) -> str:
    return f"http://{nodes.address(node)}"


def test_a_node_that_follows_shows_and_links(
    three: ThreeNodes,  # noqa: F811
    look: Any,
) -> None:
    leader = three.leader()
    follower = next(node for node in NODES if node != leader)
    sent = {"body": "x", "id": "one", "delay_ms": 3_600_000}
    assert three.call(leader, "POST", "/v1/topics/t/messages?acks=all", sent).status == 200
    window: Looking = look(url_of(three, follower)).at("/topics/default/t/messages/one")
    window.sees(f"This node, {NAMES[follower]}, follows").sees("waiting")
    expect(window.page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    there = window.page.get_by_role("link", name="Open the dashboard of the leader")
    assert (
        there.get_attribute("href") == f"{url_of(three, leader)}/ui/#/topics/default/t/messages/one"
    )
    there.click()
    expect(window.page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()


def test_the_leadership_is_handed_over(
    three: ThreeNodes,  # noqa: F811
    look: Any,
) -> None:
    leader = three.leader()
    other = next(node for node in NODES if node != leader)
    window: Looking = look(url_of(three, leader)).at("/nodes").sees("reachable")
    rows = window.page.get_by_role("region", name="Nodes").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text=NAMES[leader])).to_contain_text("leader")
    links = [each.get_attribute("href") for each in rows.get_by_role("link").all()]
    assert links == [f"{url_of(three, node)}/ui/" for node in NODES]
    assert window.faults() == []
    window.shoot("cluster-light")
    window.press(f"Hand over to {NAMES[other]}").confirm("Hand over")
    window.sees(f"{NAMES[other]} leads")
    assert three.leader() == other
    window.sees(f"This node, {NAMES[leader]}, follows")
