"""Three nodes of 0.1.0 are upgraded one by one to the present program, under load.

The old release comes from this repository's history, so a shallow clone cannot run this. Judged as
every drill is: nothing lost, nothing early, repeats only of what was handed out in the last 50 ms,
and folders that are the same on all nodes. Then the feature level has risen, and a node that goes
back to 0.1.0 is refused by name, changes nothing, and is let in again with the present program.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from delaylog.broker.drills import run as running
from delaylog.broker.drills.kinds import DRILLS, DrillError
from delaylog.broker.drills.rounds import Stage, Strike
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.storage.log.levels import KNOWN_LEVEL

HERE = Path(__file__).parents[2]
OLD = "014a240"
"""Release 0.1.0."""
ROUNDS = len(NODES)
WAIT_S = 30.0


def old_release(target: Path) -> Path:
    """The sources of 0.1.0. Fails where the repository's history does not reach back to it."""
    done = subprocess.run(["git", "archive", OLD], cwd=HERE, capture_output=True, check=False)
    assert done.returncode == 0, f"commit {OLD} (0.1.0) is not in this clone: fetch all history"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    return target


class MixedTrio(Trio):
    """Nodes that each run the release that a file of theirs names."""

    def __init__(self, folder: Path) -> None:
        old_release(folder / "release-0.1.0")
        self._launcher = folder / "launch.py"
        self._launcher.write_text(
            "import os, pathlib, sys\n"
            "source = pathlib.Path(sys.argv.pop(1)).read_text()\n"
            "os.environ['PYTHONPATH'] = source\n"
            "sys.path.insert(0, source)\n"
            "from delaylog.broker.cli.main import main\n"
            "import delaylog\n"
            "assert delaylog.__file__.startswith(source), delaylog.__file__\n"
            "sys.exit(main())\n"
        )
        self._releases = {node: folder / f"node-{node}.release" for node in NODES}
        self._old = folder / "release-0.1.0" / "src"
        for node in NODES:
            self.use(node, old=True)
        super().__init__(folder, program=self._program)

    def use(self, node: int, *, old: bool) -> None:
        """From its next start on it is this release."""
        self._releases[node].write_text(str(self._old if old else HERE / "src"))

    def _program(self, node: int) -> list[str]:
        return [sys.executable, "-P", str(self._launcher), str(self._releases[node])]

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
    """Stop the next node politely and start it with the present program."""
    trio = stage.trio
    assert isinstance(trio, MixedTrio)
    node = NODES[len(stage.rounds)]
    raised = f"all members know feature level {KNOWN_LEVEL}"
    if any(trio.says(each, raised) for each in NODES):
        raise DrillError("the level rose while a node was an older release")
    leader = await trio.leader()
    fault_ms = wall_ms()
    await trio.nodes[node].stop()
    trio.use(node, old=False)
    stopped_ms = wall_ms()
    strike = Strike("", leader, fault_ms, stopped_ms, stopped_ms, disturbs=node == leader)
    one = await stage.serving_again(strike)
    await stage.all_back(one)
    if node == NODES[-1]:
        await until_one_says(trio, raised)
        await go_back(stage, trio)


async def go_back(stage: Stage, trio: MixedTrio) -> None:
    """A follower is started as 0.1.0 again: it must not get in, and must not harm its folder."""
    _, (node, _) = await trio.others()
    await trio.nodes[node].stop()
    trio.use(node, old=True)
    try:
        await asyncio.wait_for(trio.start(node), 10.0)
    except DrillError as error:
        stage.notes.append(f"0.1.0 does not start on the raised folder: {str(error)[-300:]}")
    except TimeoutError:
        await until_one_says(trio, f"node {node} runs an older delaylog")
    else:
        await until_one_says(trio, f"node {node} runs an older delaylog")
    if trio.nodes[node].running:
        await trio.nodes[node].kill()
    trio.use(node, old=False)
    await trio.start(node)
    await trio.caught_up(node)


@pytest.mark.drill
def test_three_nodes_are_upgraded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = running.Kind(upgrade_one, make_trio=MixedTrio)
    monkeypatch.setitem(running.KINDS, "rolling-upgrade", kind)
    monkeypatch.setitem(DRILLS, "rolling-upgrade", "upgrade")
    result = running.run_drill("rolling-upgrade", rounds=ROUNDS, seed=20260101, folder=tmp_path)
    assert result["holds"], result
    assert result["lost"] == result["early"] == result["duplicates_over_bound"] == 0
    assert result["rounds"] == ROUNDS
