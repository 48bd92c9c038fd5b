"""What an operator does wrong: each must do no harm and end in a line that names the remedy.

Each function makes one mistake, sees what is said of it, and undoes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from delaylog.replication.configuration import CLUSTER_SIZES
from tests.broker.cluster.random_operator.field import STALE_STATUS, Field
from tests.broker.cluster.random_operator.legal import Action
from tests.broker.cluster.random_operator.nodes import LINE_S

MISUSE_STATUS = 2
REMEDY = {
    "old copy": ("it is an old copy", "moves its data to a folder damaged-TIME and fetches a copy"),
    "twin": ("two processes serve as node", "stop one of them"),
    "other node": ("is that of node", "serve the folder with --node"),
    "other name": ("belongs to another cluster", "serve the folder with the cluster file"),
    "earlier cluster": ("belongs to another cluster of this name", "needs an empty data folder"),
    "no cluster": ("--cluster FILE",),
    "blank": ("joins as a learner until a leader readmits it",),
}
"""What is said of each mistake, and what to do."""


def wrong_index(field: Field) -> str | None:
    """The folder of a node with the index of another one."""
    node = field.pick(field.members)
    other = field.pick([each for each in field.members if each != node])
    field.end(node)
    file = _file(field, other)
    status, said = field.nodes.attempt(node, "--cluster", str(file), "--node", str(other))
    _refused(status, said, "other node")
    return f"serve the folder of {node} as {other}"


def swapped_folders(field: Field) -> str | None:
    """Two folders are mounted crosswise."""
    one, two = field.random.sample(field.members, 2)
    nodes = field.nodes
    for node in (one, two):
        field.end(node)
    aside = nodes.folder / "aside"
    _swap(nodes.data_dir(one), nodes.data_dir(two), aside)
    for node in (one, two):
        words = ("--cluster", str(_file(field, node)), "--node", str(node))
        _refused(*nodes.attempt(node, *words), "other node")
    _swap(nodes.data_dir(one), nodes.data_dir(two), aside)
    return f"swap the folders of {one} and {two}"


def other_cluster_name(field: Field) -> str | None:
    node = field.pick(field.members)
    field.end(node)
    file = _file(field, node)
    file.write_text(file.read_text().replace('cluster = "three"', 'cluster = "four"'))
    words = ("--cluster", str(file), "--node", str(node))
    _refused(*field.nodes.attempt(node, *words), "other name")
    return f"serve {node} with the file of another cluster"


def no_cluster(field: Field) -> str | None:
    """The option is left out of the unit."""
    node = field.pick(field.members)
    field.end(node)
    _refused(*field.nodes.attempt(node), "no cluster")
    return f"serve {node} alone"


def wrong_file(field: Field) -> str | None:
    """It names nodes that are no members and leaves members out; the log knows better."""
    node = field.pick(field.members)
    field.end(node)
    left_out = [each for each in field.members if each != node][1:]
    field.nodes.file_for(node, [*left_out, *field.outside])
    field.nodes.start(node)
    return f"start {node} with a file of {sorted({node, *left_out, *field.outside})}"


def wrong_file_on_a_blank_folder(field: Field) -> str | None:
    """As in the cluster that was split: a larger file, and the folder was emptied for it."""
    field.lose_disks()
    node = field.follower()
    field.end(node)
    with field.fault():
        field.nodes.drop(field.nodes.data_dir(node))
    since = field.nodes.said(node)
    field.nodes.file_for(node, field.nodes.http)
    field.nodes.start(node, wait=False)
    _told(field, node, "blank", since)
    field.settle()
    return f"empty {node} and start it with a file of five"


def new_cluster_left(field: Field) -> str | None:
    """The option is still in the unit."""
    node = field.pick(field.members)
    field.end(node)
    field.start(node, new_cluster=True)
    return f"start {node} with --new-cluster"


def new_cluster_on_a_blank_folder(field: Field) -> str | None:
    if len(field.members) not in CLUSTER_SIZES:
        # Refused before anything: no cluster is founded with so many.
        return None
    field.lose_disks()
    node = field.follower()
    field.end(node)
    with field.fault():
        field.nodes.drop(field.nodes.data_dir(node))
    since = field.nodes.said(node)
    field.nodes.file_for(node, field.members)
    field.nodes.start(node, new_cluster=True, wait=False)
    field.nodes.says(node, "this node joins as a learner", since)
    field.settle()
    return f"empty {node} and start it with --new-cluster"


def old_copy(field: Field) -> str | None:
    """The folder of days ago is put back: it is recognised, set aside and replaced."""
    able = [node for node in field.copies if node in field.voters]
    if not able:
        return None
    field.lose_disks()
    node = field.pick(able)
    nodes = field.nodes
    field.end(node)
    with field.fault():
        nodes.drop(nodes.data_dir(node))
        shutil.move(field.copies.pop(node), nodes.data_dir(node))
    nodes.file_for(node, field.members)
    since = nodes.said(node)
    nodes.start(node, wait=False)
    assert nodes.ended(node) == STALE_STATUS, nodes.tails()
    _told(field, node, "old copy", since)
    field.settle()
    assert list(nodes.data_dir(node).glob("damaged-*")), "its data were set aside"
    for kept in nodes.data_dir(node).glob("damaged-*"):
        shutil.rmtree(kept)
    return f"put an old copy of {node} back"


def earlier_cluster(field: Field) -> str | None:
    """A folder of before the restore, where all know the new cluster's id."""
    able = [node for node in field.earlier if node in field.voters]
    if not able:
        return None
    field.settle()
    node = field.pick(able)
    nodes = field.nodes
    field.end(node)
    aside = nodes.folder / "aside"
    shutil.move(nodes.data_dir(node), aside)
    shutil.move(field.earlier.pop(node), nodes.data_dir(node))
    nodes.file_for(node, field.members)
    since = {each: nodes.said(each) for each in field.members}
    nodes.start(node, wait=False)
    _told(field, node, "earlier cluster", since[node])
    nodes.kill(node)
    shutil.rmtree(nodes.data_dir(node))
    shutil.move(aside, nodes.data_dir(node))
    field.settle()
    return f"start {node} on the folder of an earlier cluster"


def twin(field: Field) -> str | None:
    """Another process serves as a node that runs, on a copy of its folder or a blank one."""
    field.settle()
    node = field.follower()
    copied = field.random.random() < 0.5
    other = field.nodes.twin(node, field.members)
    if copied:
        (status,) = field.nodes.stop(node)
        assert status == 0, status
        ignore = shutil.ignore_patterns("reserve")
        shutil.copytree(field.nodes.data_dir(node), other.data_dir(node), ignore=ignore)
        field.settle()
    since = {each: field.nodes.said(each) for each in field.members}
    try:
        other.start(node, wait=False)
        if node == max(field.members):
            # Nodes of a smaller index dial, and they dial the node's own address.
            field.until(
                lambda: _is_alone(other.call(node, "GET", "/readyz").body),
                "it never said that it is alone",
                LINE_S,
            )
        elif copied:
            assert other.ended(node) == STALE_STATUS, other.tails()
            _told(field, node, "old copy", 0, log=other.log_path(node))
        else:
            # It reaches only nodes of a greater index.
            field.until(
                lambda: any(_has(field, each, "twin", since[each]) for each in field.members),
                "nobody spoke of two processes",
                LINE_S,
            )
    finally:
        other.clean_up()
        field.nodes.drop(other.data_dir(node))
    return f"a second process as {node}, " + ("copied" if copied else "blank")


# --------------------------------------------------------------------------- helpers


def _is_alone(said: bytes) -> bool:
    return b"not connected" in said or b"has no data yet" in said


def _file(field: Field, node: int) -> Path:
    """A cluster file of its own for a process that is not meant to come up."""
    field.nodes.file_for(node, field.members)
    file = field.nodes.folder / "wrong.toml"
    file.write_text(field.nodes.configs[node].read_text())
    return file


def _swap(one: Path, two: Path, aside: Path) -> None:
    shutil.move(one, aside)
    shutil.move(two, one)
    shutil.move(aside, two)


def _refused(status: int, said: str, mistake: str) -> None:
    assert status == MISUSE_STATUS, (status, said)
    for text in REMEDY[mistake]:
        assert text in said, f"{text!r} is not said: {said}"


def _has(field: Field, node: int, mistake: str, since: int) -> bool:
    said = field.nodes.log_path(node).read_bytes()[since:].decode(errors="replace")
    return all(text in said for text in REMEDY[mistake])


def _told(field: Field, node: int, mistake: str, since: int, log: Path | None = None) -> None:
    for text in REMEDY[mistake]:
        if log is None:
            field.nodes.says(node, text, since)
        else:
            assert text in log.read_text(), log.read_text()


MISTAKES: dict[str, tuple[int, Action]] = {
    "wrong index": (2, wrong_index),
    "swapped folders": (2, swapped_folders),
    "other cluster's name": (1, other_cluster_name),
    "no --cluster": (1, no_cluster),
    "wrong file": (2, wrong_file),
    "wrong file, blank": (2, wrong_file_on_a_blank_folder),
    "--new-cluster left": (2, new_cluster_left),
    "--new-cluster, blank": (2, new_cluster_on_a_blank_folder),
    "old copy": (4, old_copy),
    "earlier cluster": (3, earlier_cluster),
    "second process": (3, twin),
}
"""How often each is drawn, and what it does."""
