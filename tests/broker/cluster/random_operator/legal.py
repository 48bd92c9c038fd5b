"""What an operator may do: each function is one action on the field, and returns what it did.

None = there is nothing to do it to at the moment.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable

from tests.broker.cluster.random_operator.field import Field
from tests.programs import run_program
from tests.starts.warm import PROGRAM

Action = Callable[[Field], str | None]
VOTERS_MIN = 3
PAUSE_S = (0.5, 2.0)
FULL_S = (1.0, 3.0)
STEPS_MS = (-1_500, -300, 300, 1_500)
FOUNDED_WITH = (3, 5)


def start(field: Field) -> str | None:
    if not field.down:
        return None
    node = field.pick(field.down)
    field.start(node)
    return f"start {node}"


def stop(field: Field) -> str | None:
    if not field.up:
        return None
    node = field.pick(field.up)
    (status,) = field.nodes.stop(node)
    assert status == 0, f"SIGTERM ended node {node} with {status}"
    return f"stop {node}"


def kill(field: Field) -> str | None:
    """One, or rarely all."""
    nodes = field.up
    if not nodes:
        return None
    if field.random.random() < 0.85:
        nodes = [field.pick(nodes)]
    with field.fault():
        field.nodes.kill(*nodes)
    return f"kill {nodes}"


def pause(field: Field) -> str | None:
    """As a virtual machine that is moved."""
    if not field.up:
        return None
    node = field.pick(field.up)
    with field.fault():
        field.nodes.signal(node, signal.SIGSTOP)
        time.sleep(field.random.uniform(*PAUSE_S))
        field.nodes.signal(node, signal.SIGCONT)
    return f"pause {node}"


def wipe(field: Field) -> str | None:
    """A new disk: one of three, or up to two of five."""
    field.lose_disks()
    most = (len(field.voters) - 1) // 2
    lost = field.random.sample(field.voters, field.random.randint(1, most))
    for node in lost:
        field.end(node)
        with field.fault():
            field.nodes.drop(field.nodes.data_dir(node))
    field.start(*lost)
    return f"wipe {lost}"


def add(field: Field) -> str | None:
    """A new node; it is promoted later, or at once."""
    if not field.outside:
        return None
    node = field.pick(field.outside)
    field.nodes.drop(field.nodes.data_dir(node))
    refused = field.change("add", node, **field.nodes.contact(node))
    assert not refused, refused
    field.learners.append(node)
    field.start(node)
    said = f"add {node}"
    if field.random.random() < 0.5:
        said += f", {promote(field, node)}"
    return said


def promote(field: Field, node: int = 0) -> str | None:
    """A learner that runs."""
    ready = [each for each in field.learners if each in field.nodes.running]
    if not ready:
        return None
    node = node or field.pick(ready)
    refused = field.change("promote", node)
    assert not refused, refused
    field.learners.remove(node)
    field.voters.append(node)
    return f"promote {node}"


def remove(field: Field) -> str | None:
    """A learner, or a voter of more than three; its folder is of no more use."""
    leader = field.leader()
    voters = field.voters if len(field.voters) > VOTERS_MIN else []
    nodes = [node for node in (*field.learners, *voters) if node != leader]
    if not nodes:
        return None
    node = field.pick(nodes)
    if node in field.voters:
        field.settle()
    if refused := field.change("remove", node):
        return f"remove {node}: {refused}"
    _leave(field, node)
    return f"remove {node}"


def replace(field: Field) -> str | None:
    """A voter that may be gone, by a learner."""
    ready = [each for each in field.learners if each in field.nodes.running]
    if not ready:
        return None
    new, leader = field.pick(ready), field.leader()
    old = field.pick([node for node in field.voters if node != leader])
    field.settle()
    if field.random.random() < 0.5:
        field.end(old)
    if refused := field.change("replace", old, new):
        return f"replace {old} by {new}: {refused}"
    field.learners.remove(new)
    field.voters.append(new)
    _leave(field, old)
    return f"replace {old} by {new}"


def _leave(field: Field, node: int) -> None:
    """A node was removed. It may run on for a while; then its folder is put aside."""
    nodes = field.nodes
    (field.voters if node in field.voters else field.learners).remove(node)
    field.copies.pop(node, None)
    if node in nodes.running:
        if field.random.random() < 0.5:
            nodes.says(node, "this node was removed from the cluster", 0)
        nodes.kill(node)
    elif field.random.random() < 0.5:
        # It comes back with its folder; others tell it.
        since = nodes.said(node)
        nodes.start(node, wait=False)
        nodes.says(node, "this node was removed from the cluster", since)
        assert nodes.call(node, "GET", "/readyz").status == 503
        nodes.kill(node)
    nodes.drop(nodes.data_dir(node))


def hand_over(field: Field) -> str | None:
    leader = field.leader()
    target = field.pick(field.voters)
    answer = field.nodes.call(leader, "POST", "/v1/cluster/handover", {"to": target})
    assert answer.status in (0, 200, 409, 503), answer
    return f"hand over from {leader} to {target}: {answer.status}"


def full_disk(field: Field) -> str | None:
    """For a moment, of a leader or of a follower."""
    if not field.up:
        return None
    node = field.pick(field.up)
    with field.fault():
        field.fill(node, full=True)
        time.sleep(field.random.uniform(*FULL_S))
        field.check()
        if field.random.random() < 0.7:
            field.fill(node, full=False)
    return f"full disk of {node}" + (", which stays full" if node in field.nodes.full else "")


def step_clock(field: Field) -> str | None:
    node = field.pick(field.members)
    offset_ms = 0 if field.nodes.clock_ms[node] else field.random.choice(STEPS_MS)
    began_ms = int(time.time() * 1000)
    with field.fault():
        field.step_clock(node, offset_ms)
        time.sleep(0.2)
    field.load.recorder.mark("clock", began_ms, until=int(time.time() * 1000))
    return f"clock of {node} is off by {offset_ms} ms"


def snapshot(field: Field) -> str | None:
    """Copy a folder; then the node has another life in which all others meet it."""
    field.settle()
    node = field.follower()
    (status,) = field.nodes.stop(node)
    assert status == 0, status
    copy = field.nodes.folder / f"copy{node}"
    field.nodes.drop(copy)
    shutil.copytree(field.nodes.data_dir(node), copy, ignore=shutil.ignore_patterns("reserve"))
    if node in field.voters:
        field.copies[node] = copy
    else:
        # A learner has promised and acknowledged nothing: with an old folder it just joins anew.
        field.nodes.drop(copy)
    field.settle()
    return f"copy the folder of {node}"


def restore(field: Field) -> str | None:
    """Of a backup that holds all: a new cluster of the same name."""
    if field.learners or len(field.voters) not in FOUNDED_WITH:
        return None
    field.settle()
    field.load.hold()
    nodes = field.nodes
    nodes.caught_up()
    with field.fault():
        statuses = nodes.stop()
        assert not any(statuses), statuses
        backup = nodes.folder / "backup"
        nodes.drop(backup)
        # The leader handed over when it ended: any of them holds all.
        source = max(field.voters, key=lambda node: nodes.log_path(node).stat().st_mtime)
        _run("backup", nodes.data_dir(source), backup)
        for old in field.earlier.values():
            nodes.drop(old)
        field.earlier, field.copies = {}, {}
        for node in field.voters:
            field.earlier[node] = nodes.folder / f"earlier{node}"
            shutil.move(nodes.data_dir(node), field.earlier[node])
            _run("restore", backup, nodes.data_dir(node))
        field.start(*field.voters, new_cluster=True)
        nodes.until(lambda: nodes.status(field.leader())["version"], "no version")
        assert nodes.call(field.leader(), "DELETE", "/v1/hold").status == 200
    field.load.go_on()
    return f"restore the folder of {source} on {field.voters}"


def _run(*words: object) -> None:
    done = run_program(PROGRAM, *words, timeout=120)
    assert done.returncode == 0, done


LEGAL: dict[str, tuple[int, Action]] = {
    "start": (6, start),
    "stop": (4, stop),
    "kill": (6, kill),
    "pause": (3, pause),
    "wipe": (3, wipe),
    "add": (4, add),
    "promote": (4, promote),
    "remove": (2, remove),
    "replace": (3, replace),
    "hand over": (3, hand_over),
    "full disk": (3, full_disk),
    "clock step": (3, step_clock),
    "snapshot": (2, snapshot),
    "restore": (1, restore),
}
"""How often each is drawn, and what it does."""
