"""A node whose others are all away: it ends cleanly, and its folder is no single broker's."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.programs import run_program
from tests.starts.warm import PROGRAM


def test_a_node_alone_ends(start_three: Callable[..., ThreeNodes]) -> None:
    """It was started with nobody there, so it never heard how far the log is committed."""
    three = start_three()
    answer = three.on_leader("POST", "/v1/topics/left/messages", {"body": "x"})
    assert answer.status == 200, answer
    three.caught_up()
    assert set(three.stop()) == {0}
    for node in NODES:
        three.start(node)
        assert three.stop(node) == [0], three.tails()


def test_a_members_folder_is_not_served_alone(start_three: Callable[..., ThreeNodes]) -> None:
    """It would begin an epoch of its own and apply what no majority has."""
    three = start_three()
    three.leader()
    assert set(three.stop()) == {0}
    folder = three.data_dir(1)
    before = {path.name for path in folder.iterdir()}
    served = run_program(
        PROGRAM, "serve", "--data-dir", folder, "--http", "127.0.0.1:0", timeout=30
    )
    assert served.returncode == 2, served
    assert "--cluster FILE" in served.stderr
    assert {path.name for path in folder.iterdir()} == before
