"""Disasters as docs/CLUSTER_REPAIR.md says to deal with them, on real nodes."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.growing import Growing
from tests.programs import run_program
from tests.starts.warm import PROGRAM


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path)
    yield made
    made.clean_up()


def run(*words: object, status: int = 0) -> str:
    """A command; what it said."""
    done = run_program(PROGRAM, *words, timeout=120)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def send(nodes: Growing, *names: str) -> None:
    for name in names:
        body = {"id": name, "body": name, "delay_ms": 3_600_000}
        key = {"Idempotency-Key": name}
        answer = nodes.on_leader("POST", "/v1/topics/t/messages", body, key)
        assert answer.status == 200, answer


def there(nodes: Growing, name: str) -> bool:
    path = f"/v1/topics/t/messages/{name}"
    return nodes.on_leader("GET", path).status == 200


def recover(nodes: Growing, node: int, *more: str, status: int = 0) -> str:
    folder, file = nodes.data_dir(node), nodes.configs[node]
    words = [folder, "--cluster", file, "--node", node, *more]
    return run("cluster", "recover", *words, status=status)


@pytest.mark.parametrize(("size", "changed"), [(3, False), (3, True), (5, False)])
def test_a_backup_is_restored_on_every_node(nodes: Growing, size: int, changed: bool) -> None:
    """Of a follower's folder, while the cluster serves; then one id and one epoch for all.

    Also when its members had changed before the backup.
    """
    old = tuple(range(1, size + 1))
    nodes.found(*old)
    if changed:
        nodes.changed("add", 4, **nodes.contact(4))
        nodes.changed("remove", 4)
    send(nodes, "before")
    nodes.caught_up()
    follower = nodes.followers()[0]
    run("backup", nodes.data_dir(follower), nodes.folder / "backup")
    send(nodes, "after")
    before = nodes.status(nodes.leader())
    nodes.kill()
    for node in old:
        shutil.move(nodes.data_dir(node), nodes.folder / f"lost{node}")
        run("restore", nodes.folder / "backup", nodes.data_dir(node))
    nodes.found(*old)
    nodes.caught_up()
    told = [nodes.status(node) for node in old]
    assert len({each["cluster_id"] for each in told}) == 1
    assert told[0]["cluster_id"] != before["cluster_id"], "the old nodes must not join it"
    nodes.until(lambda: len({str(nodes.status(node).get("epoch")) for node in old}) == 1)
    assert len(nodes.voters()) == size
    assert there(nodes, "before")
    assert not there(nodes, "after")
    send(nodes, "new")
    # A node of the old cluster is refused in one line.
    last = old[-1]
    nodes.kill(last)
    shutil.rmtree(nodes.data_dir(last))
    shutil.move(nodes.folder / f"lost{last}", nodes.data_dir(last))
    nodes.start(last, wait=False)
    nodes.until(lambda: "another cluster of this name" in nodes.log_path(last).read_text())
    send(nodes, "newer")


def test_the_only_survivor_goes_on_and_the_lost_nodes_are_shut_out(nodes: Growing) -> None:
    nodes.found(1, 2, 3)
    send(nodes, "a", "b")
    nodes.caught_up()
    survivor = nodes.followers()[0]
    lost = [node for node in (1, 2, 3) if node != survivor]
    nodes.kill()
    said = recover(nodes, survivor, status=1)
    assert "the cluster was not changed" in said
    assert "--accept-loss" in said
    assert "which excludes" in recover(nodes, survivor, "--accept-loss")
    nodes.start(survivor)
    assert nodes.leader() == survivor
    assert nodes.voters() == [nodes.contact(survivor)["name"]]
    assert there(nodes, "a")
    send(nodes, "c")
    # The others are back with what they held: nobody hears them, and they find no leader.
    for node in lost:
        nodes.start(node, wait=False)
    nodes.until(lambda: len({nodes.status(node).get("role") for node in lost}) == 1)
    send(nodes, "d")
    nodes.kill(*lost)
    # Emptied, they join again.
    for node in lost:
        shutil.rmtree(nodes.data_dir(node))
    nodes.join(*lost)
    assert len(nodes.changed("promote", *lost)["voters"]) == 3
    nodes.kill(survivor)
    for name in "abcd":
        assert there(nodes, name)


def test_what_is_no_members_folder_is_not_recovered(nodes: Growing) -> None:
    nodes.file_for(1, (1, 2, 3))
    nodes.data_dir(1).mkdir()
    assert "is not a data folder" in recover(nodes, 1, "--accept-loss", status=2)


def test_an_old_copy_of_a_folder_is_not_believed(nodes: Growing) -> None:
    """It is recognised at once; the next start sets it aside and fetches what it lacks."""
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    node, other = nodes.followers()
    nodes.stop(node)
    shutil.copytree(nodes.data_dir(node), nodes.folder / "copy")
    nodes.start(node)
    nodes.caught_up()
    nodes.stop(other)
    send(nodes, "b")
    nodes.stop(node)
    shutil.rmtree(nodes.data_dir(node))
    shutil.move(nodes.folder / "copy", nodes.data_dir(node))
    nodes.start(node, wait=False)
    assert nodes.ended(node) == 65, nodes.tails()
    assert "it is an old copy" in nodes.log_path(node).read_text()
    nodes.start(other)
    nodes.start(node)
    nodes.all_vote(node)
    assert list(nodes.data_dir(node).glob("damaged-*"))
    nodes.kill(nodes.leader())
    assert there(nodes, "b")


@pytest.mark.parametrize("copied", [True, False])
def test_a_second_process_with_the_same_index_is_kept_out(nodes: Growing, copied: bool) -> None:
    """On a copied folder or a blank one; the node that is there goes on."""
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    node = nodes.followers()[0]
    (nodes.folder / "twin").mkdir()
    twin = Growing(nodes.folder / "twin")
    shutil.copy(nodes.folder / "cluster.secret", twin.folder / "cluster.secret")
    for each in (1, 2, 3):
        if each != node:
            twin.http[each], twin.peers[each] = nodes.http[each], nodes.peers[each]
    twin.file_for(node, (1, 2, 3))
    nodes.stop(node)
    if copied:
        shutil.copytree(nodes.data_dir(node), twin.data_dir(node))
    nodes.start(node)
    nodes.caught_up()
    twin.start(node, wait=False)
    if copied:
        assert twin.ended(node) == 65, twin.tails()
    else:
        # The twin reaches only nodes of a greater index; the others dial the node's own address.
        nodes.until(lambda: "two processes serve" in nodes.tails())
        twin.clean_up()
    nodes.until(lambda: nodes.status(node).get("role") in ("leader", "follower"))
    # A leader that is new knows of a voter once that has answered.
    nodes.until(lambda: len(nodes.voters()) == 3, "not all three are counted")
    send(nodes, "b")


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "running on"])
def test_a_node_keeps_what_the_others_have_lost(nodes: Growing, restarted: bool) -> None:
    """Two disks lose an acknowledged message; the third does not cut it, and says so.

    One that runs on has applied the message since its start, and serves it too.
    """
    nodes.found(1, 2, 3)
    send(nodes, "a")
    nodes.caught_up()
    nodes.stop()
    lossy, keeper = (1, 2), 3
    for node in lossy:
        shutil.copytree(nodes.data_dir(node), nodes.folder / f"before{node}")
    nodes.start()
    send(nodes, "b")
    nodes.caught_up()
    if restarted:
        nodes.stop()
    else:
        nodes.signal(keeper, signal.SIGSTOP)
        nodes.stop(*lossy)
    for node in lossy:
        # They still know who they are and what they have promised.
        for name in ("meta", "vote"):
            shutil.copy(nodes.data_dir(node) / name, nodes.folder / f"before{node}" / name)
        shutil.rmtree(nodes.data_dir(node))
        shutil.move(nodes.folder / f"before{node}", nodes.data_dir(node))
    nodes.start(*lossy)
    send(nodes, "c")
    if restarted:
        nodes.start(keeper, wait=False)
    else:
        nodes.signal(keeper, signal.SIGCONT)
    nodes.until(lambda: nodes.status(keeper).get("role") == "quarantined")
    assert "acknowledged are missing" in nodes.status(keeper)["error"]
    assert "acknowledged are missing" in nodes.log_path(keeper).read_text()
    # It serves HTTP a moment after it has met the others.
    nodes.until(lambda: nodes.call(keeper, "GET", "/readyz").status == 503)
    metrics = nodes.call(keeper, "GET", "/metrics").body.decode()
    assert "delaylog_cluster_lost_commits_total 1.0" in metrics
    # One that was restarted answers before it has applied its log.
    path = "/v1/topics/t/messages/b?read=local"
    nodes.until(lambda: nodes.call(keeper, "GET", path).status == 200)
    assert not there(nodes, "b")
    assert nodes.stop(keeper) == [0]
