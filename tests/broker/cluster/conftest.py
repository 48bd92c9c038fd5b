"""A cluster of three real processes for every test that needs one.

Starting a cluster costs seconds, so a module shares one; a test that kills a node starts it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import NODES, ThreeNodes


@pytest.fixture(scope="module")
def start_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ThreeNodes]]:
    """Makes clusters that are killed at the end of the module."""
    made: list[ThreeNodes] = []

    def start(**options: Any) -> ThreeNodes:
        nodes = ThreeNodes(tmp_path_factory.mktemp("cluster"), **options)
        made.append(nodes)
        nodes.start(new_cluster=True)
        # The first leader puts the members into the log, in a second epoch of its own.
        nodes.until(lambda: nodes.status(nodes.leader()).get("version"))
        # Until a follower has that, it knows no principal either.
        nodes.caught_up()
        return nodes

    yield start
    for nodes in made:
        nodes.clean_up()


@pytest.fixture(scope="module")
def three(start_three: Callable[..., ThreeNodes]) -> Iterator[ThreeNodes]:
    """The module's cluster, all nodes up and one of them leading. Its nodes leave cleanly, and none
    has met an error that it did not expect.
    """
    nodes = start_three()
    nodes.leader()
    yield nodes
    assert set(nodes.stop()) == {0}, nodes.tails()
    for node in NODES:
        assert not [line for line in nodes.log_lines(node) if "exception" in line]
