"""What a folder becomes that is not part of the cluster yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from delaylog.broker.cluster.joining import Joining, is_new
from delaylog.replication.messages import Hello
from delaylog.replication.meta import Meta
from tests.broker.cluster.three_nodes import ThreeNodes
from tests.starts.warm import PROGRAM


def hello(node: int, *, promised: int = 0, end: int = 0) -> Hello:
    return Hello(bytes(16), node, False, promised, end)


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        (hello(1), {}, None),
        (hello(1), {2: hello(2)}, None),
        (hello(1), {2: hello(2), 3: hello(3)}, True),
        (hello(1), {2: hello(2, promised=5), 3: hello(3)}, True),
        (hello(1), {2: hello(2), 3: hello(3, end=64)}, False),
        (hello(1), {2: hello(2, end=64)}, False),
        (hello(1, promised=5, end=64), {n: hello(n, promised=5, end=64) for n in (2, 3)}, True),
        (hello(1, promised=5, end=64), {n: hello(n, promised=6, end=64) for n in (2, 3)}, False),
        (hello(1, promised=5, end=64), {2: hello(2), 3: hello(3)}, False),
    ],
)
def test_a_cluster_is_new(mine: Hello, others: dict[int, Hello], expected: bool | None) -> None:
    """When everybody was heard, and holds nothing or the same."""
    assert is_new(mine, [2, 3], others) is expected


class _MetaFile:
    """Holds what is saved."""

    def __init__(self) -> None:
        self.meta = Meta.learner(bytes(16), 1, {1: "a:1", 2: "b:1", 3: "c:1"})
        self.saved: list[bool] = []

    def save(self, meta: Meta) -> None:
        self.meta = meta
        self.saved.append(meta.voter)


def test_a_blank_folder_is_a_learners_unless_the_cluster_is_new() -> None:
    meta = _MetaFile()
    assert not Joining([2, 3], new_cluster=True).enter_blank(meta)  # type: ignore[arg-type]
    assert meta.saved == [], "what it becomes is not known yet"
    assert Joining([2, 3], new_cluster=False).enter_blank(meta)  # type: ignore[arg-type]
    assert meta.saved == [False]


@pytest.mark.parametrize("end", [0, 64])
def test_in_a_new_cluster_all_others_are_heard_first(end: int) -> None:
    """A voter if the last one holds nothing either, else a learner."""
    meta, joining = _MetaFile(), Joining([2, 3], new_cluster=True)
    for peer in (hello(2), hello(3, end=end)):
        assert not joining.enter_known(hello(1), meta)  # type: ignore[arg-type]
        assert meta.saved == []
        joining.hear(peer.node, peer)
    assert joining.enter_known(hello(1), meta)  # type: ignore[arg-type]
    assert meta.saved == [end == 0]


def test_nobody_is_believed_where_the_cluster_is_not_new() -> None:
    meta, joining = _MetaFile(), Joining([2], new_cluster=False)
    joining.hear(2, hello(2))
    assert not joining.enter_known(hello(1), meta)  # type: ignore[arg-type]
    assert meta.saved == []


def test_a_single_brokers_folder_does_not_join(tmp_path: Path) -> None:
    """What it holds would be replaced by what the others have."""
    three = ThreeNodes(tmp_path)
    folder = three.data_dir(1)
    words = ["--data-dir", str(folder), "--http", "127.0.0.1:0"]
    with subprocess.Popen([PROGRAM, "serve", *words], stdout=subprocess.PIPE, text=True) as alone:
        assert alone.stdout is not None
        assert alone.stdout.readline().startswith("ready")
        alone.terminate()
    shutil.copytree(folder, tmp_path / "before")
    joining = subprocess.run(
        [PROGRAM, "serve", *words, "--cluster", str(three.config), "--node", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert joining.returncode == 2, joining
    assert "a broker without a cluster" in joining.stderr
    for path in (tmp_path / "before" / "log").iterdir():
        assert (folder / "log" / path.name).read_bytes() == path.read_bytes()
