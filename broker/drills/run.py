"""Runs one drill: starts the cluster and the load, applies the faults, and judges the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from delaylog.broker.drills.compare import compare, is_unsaved
from delaylog.broker.drills.faults.certificates import (
    CertifiedTrio,
    certificates,
    need_certificates,
)
from delaylog.broker.drills.faults.hung import hang_leader
from delaylog.broker.drills.faults.machines import (
    SteppedTrio,
    busy_machine,
    clock_step,
    need_strace,
    slow_disk,
)
from delaylog.broker.drills.faults.networks import (
    NetworkTrio,
    black_hole,
    cut_tcp,
    own_filtered_network,
    own_network,
    partition,
)
from delaylog.broker.drills.faults.processes import (
    blank_node,
    failovers,
    hand_over,
    kill_leader,
    restart_all,
    stop_leader,
)
from delaylog.broker.drills.kinds import DRILLS, DrillError
from delaylog.broker.drills.load import Load, Route
from delaylog.broker.drills.node_watch import ReadinessWatch, unseen_outages
from delaylog.broker.drills.rounds import Fault, Stage
from delaylog.broker.drills.timeline import wall_ms
from delaylog.broker.drills.trio import Trio
from delaylog.broker.drills.verdict import Limits, judge, result_object
from delaylog.broker.history import HistoryRecorder

Progress = Callable[[str, int, int], None]
STOPS_MAX: Final = 3
"""Nodes stop at the same time, so the leader may lose its majority before it has made its last
checkpoint. Then all of them start and stop again."""


NONE: Final = Limits()
HUNG: Final = Limits(pause_ms=3_000)
"""A leader that hangs or is cut off has to be replaced within this time."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One drill of the table below."""

    fault: Fault
    limits: Limits = NONE
    make_trio: Callable[[Path], Trio] = Trio
    clock_steps: bool = False
    """Whether nodes' clocks are stepped: their times cannot be compared, so repeats are judged by
    the checker alone."""
    need: Callable[[], None] = lambda: None
    """Raises DrillError if this machine lacks something. It may restart the program."""


KINDS: Final = {
    "kill-leader": Kind(kill_leader, Limits(quiet_ms=(400, 600))),
    "stop-leader": Kind(stop_leader, HUNG),
    "hang-leader": Kind(hang_leader, HUNG),
    "failovers": Kind(failovers, Limits(pause_ms=3_000, growth=0.2)),
    "handover": Kind(hand_over),
    "partition": Kind(partition, HUNG, NetworkTrio, need=own_network),
    "cut-tcp": Kind(cut_tcp, HUNG, NetworkTrio, need=own_filtered_network),
    "black-hole": Kind(black_hole, HUNG, NetworkTrio, need=own_filtered_network),
    "slow-disk": Kind(slow_disk, Limits(pause_ms=6_000), need=need_strace),
    "blank-node": Kind(blank_node),
    "clock-step": Kind(clock_step, make_trio=SteppedTrio, clock_steps=True),
    "certificates": Kind(
        certificates, Limits(pause_ms=2_000), CertifiedTrio, need=need_certificates
    ),
    "busy-machine": Kind(busy_machine),
    "restart-all": Kind(restart_all),
}
assert KINDS.keys() == DRILLS.keys()


def prepare(name: str) -> None:
    """Check what the drill needs; call this first. Raises DrillError if something is missing."""
    KINDS[name].need()


def run_drill(
    name: str, *, rounds: int, seed: int, folder: Path, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Run the drill in an empty folder; return the object that `--json` prints."""
    return asyncio.run(_run(name, rounds, seed, folder, progress))


async def _run(
    name: str, rounds: int, seed: int, folder: Path, progress: Progress
) -> dict[str, Any]:
    kind = KINDS[name]
    history = folder / "history.jsonl"
    whole = False
    with HistoryRecorder(history, client="drill") as recorder:
        async with kind.make_trio(folder) as trio, Route(trio.urls, trio.tls) as route:
            await trio.found()
            load = Load(route, recorder, seed)
            stage = Stage(trio, load, recorder, Random(seed))
            try:
                await load.begin()
                async with ReadinessWatch(trio) as watch:
                    for number in range(rounds):
                        progress(name, number, rounds)
                        await stage.play(kind.fault)
                    await stage.calm()
                stage.broken += unseen_outages(
                    load.timeline.sends, watch.all_ready, watch.not_ready_ms
                )
                if not await load.drain():
                    stage.broken.append("after the last round some messages did not end")
                whole = True
            except DrillError as error:
                stage.broken.append(str(error))
            finally:
                await load.abandon()
            recorder.mark("end", int(wall_ms()))
            if not stage.broken:
                stage.broken += await _end(trio)
    if not stage.broken:
        compared = compare({node: broker.data_dir for node, broker in trio.nodes.items()})
        stage.broken += compared.wrong
        stage.notes.append(f"{compared.hours} hours, {compared.rows:,} rows compared node by node")
        stage.notes += [
            f"node {node} stopped without a last checkpoint: its folder was verified, not compared"
            for node in compared.unsaved
        ]
    verdict = judge(
        history, load, stage.rounds, kind.limits, whole=whole, clock_steps=kind.clock_steps
    )
    verdict.broken[:0] = stage.broken
    return result_object(name, seed, verdict, stage.notes)


async def _end(trio: Trio) -> list[str]:
    """Stop the nodes, each with a last checkpoint; return a text for each that did not exit with
    status 0, or did not start again.
    """
    for again in range(STOPS_MAX):
        if again:
            try:
                await trio.start_all()
                await trio.all_vote()
            except DrillError as error:
                return [str(error)]
        statuses = await asyncio.gather(*(broker.stop() for broker in trio.nodes.values()))
        wrong = [
            f"SIGTERM ended node {node} with status {status}"
            for node, status in zip(trio.nodes, statuses, strict=True)
            if status != 0
        ]
        folders = [broker.data_dir for broker in trio.nodes.values()]
        if wrong or not any([await asyncio.to_thread(is_unsaved, each) for each in folders]):
            return wrong
    return []
