"""Three nodes are upgraded one by one to a program that knows one feature level more, under load.

The later program is this one with an artificial level, which adds nothing. Judged as every drill
is: nothing lost, nothing early, repeats only of what was handed out in the last 50 ms, and folders
that are the same on all nodes. Then the feature level has risen, and a node that goes back is
refused by name, changes nothing, and is let in again with the later program.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from delaylog.broker.drills import run as running
from delaylog.broker.drills.kinds import DRILLS, DrillError
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.storage.log.frames import KNOWN_LEVEL

NEXT_LEVEL = KNOWN_LEVEL + 1
ROUNDS = len(NODES)
WAIT_S = 30.0
LAUNCHER = """\
import pathlib, sys
from delaylog.storage.log import frames
frames.KNOWN_LEVEL = int(pathlib.Path(sys.argv.pop(1)).read_text())
from delaylog.broker.cli.main import main
sys.exit(main())
"""


class MixedTrio(Trio):
    """Nodes that each know the level that a file of theirs names."""

    def __init__(self, folder: Path) -> None:
        self._launcher = folder / "launch.py"
        self._launcher.write_text(LAUNCHER)
        self._levels = {node: folder / f"node-{node}.level" for node in NODES}
        for node in NODES:
            self.use(node, KNOWN_LEVEL)
        super().__init__(folder, program=self._program)

    def use(self, node: int, level: int) -> None:
        """From its next start on it knows this level."""
        self._levels[node].write_text(str(level))

    def _program(self, node: int) -> list[str]:
        return [sys.executable, "-P", str(self._launcher), str(self._levels[node])]

    def says(self, node: int, text: str) -> bool:
        """Whether a node's log has this."""
        return text in self.nodes[node].log_path.read_text(errors="replace")


async def until_one_says(trio: MixedTrio, text: str) -> None:
    """Wait for it in the log of any node."""
    end = time.monotonic() + WAIT_S
    while not any(trio.says(node, text) for node in NODES):
        if time.monotonic() > end:
            raise DrillError(f"no node says {text!r}")
        await asyncio.sleep(0.1)


async def upgrade_one(stage: Stage) -> None:
    """Stop the next node politely and start it with the later program."""
    trio = stage.trio
    assert isinstance(trio, MixedTrio)
    node = NODES[len(stage.rounds)]
    raised = f"all members know feature level {NEXT_LEVEL}"
    if any(trio.says(each, raised) for each in NODES):
        raise DrillError("the level rose while a node was an older program")
    leader = await trio.leader()
    fault_ms = wall_ms()
    await trio.nodes[node].stop()
    trio.use(node, NEXT_LEVEL)
    stopped_ms = wall_ms()
    strike = Strike("", leader, fault_ms, stopped_ms, stopped_ms, disturbs=node == leader)
    one = await stage.serving_again(strike)
    await stage.all_back(one)
    if node == NODES[-1]:
        await until_one_says(trio, raised)
        await go_back(stage, trio)


async def go_back(stage: Stage, trio: MixedTrio) -> None:
    """A follower is started as before again: it must not get in, and must not harm its folder."""
    _, (node, _) = await trio.others()
    await trio.nodes[node].stop()
    trio.use(node, KNOWN_LEVEL)
    try:
        await asyncio.wait_for(trio.start(node), 10.0)
    except DrillError as error:
        stage.notes.append(f"it does not start on the raised folder: {str(error)[-300:]}")
    except TimeoutError:
        await until_one_says(trio, f"node {node} runs an older delaylog")
    else:
        await until_one_says(trio, f"node {node} runs an older delaylog")
    if trio.nodes[node].running:
        await trio.nodes[node].kill()
    trio.use(node, NEXT_LEVEL)
    await trio.start(node)
    await trio.caught_up(node)


@pytest.mark.drill
def test_three_nodes_are_upgraded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = running.Kind(upgrade_one, make_trio=MixedTrio)
    # The judge reads the folders.
    monkeypatch.setattr("delaylog.storage.log.frames.KNOWN_LEVEL", NEXT_LEVEL)
    monkeypatch.setitem(running.KINDS, "rolling-upgrade", kind)
    monkeypatch.setitem(DRILLS, "rolling-upgrade", "upgrade")
    result = running.run_drill("rolling-upgrade", rounds=ROUNDS, seed=20260101, folder=tmp_path)
    assert result["holds"], result
    assert result["lost"] == result["early"] == result["duplicates_over_bound"] == 0
    assert result["rounds"] == ROUNDS
