"""What a folder becomes that is not part of the cluster yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from delaylog.broker.cluster.greeting import Joining, is_new
from delaylog.replication.messages import FolderIdentity
from delaylog.replication.meta import Meta
from tests.broker.cluster.three_nodes import ThreeNodes
from tests.programs import run_program
from tests.starts.warm import PROGRAM


def folder(history: int, *, cluster: int = 0) -> FolderIdentity:
    """What a node says of its folder."""
    return FolderIdentity(bytes([cluster]) * 16, 1, 0, bytes([history]) * 16, 0, 0, 0, 0, (1,))


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        (folder(1), {}, None),
        (folder(1), {2: folder(1)}, None),
        (folder(1), {2: folder(2)}, False),
        (folder(1), {2: folder(1), 3: folder(1)}, True),
        (folder(1), {2: folder(1), 3: folder(2)}, False),
    ],
)
def test_a_cluster_is_new(
    mine: FolderIdentity, others: dict[int, FolderIdentity], expected: bool | None
) -> None:
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


class Files:
    """A folder's."""

    def __init__(self, meta: _MetaFile) -> None:
        self.meta = meta

    def begin_alike(self, cluster: bytes) -> None:
        assert not self.meta.saved, "a crash before that leaves a folder that is not a voter's"


def made_id() -> bytes:
    return b"the id of node 1"


def joining(node: int, *, new_cluster: bool = True) -> Joining:
    return Joining(node, [each for each in (1, 2, 3) if each != node], new_cluster=new_cluster)


def test_a_blank_folder_is_a_learners_unless_the_cluster_is_new() -> None:
    meta = _MetaFile()
    assert not joining(1).enter_blank(meta)  # type: ignore[arg-type]
    assert meta.saved == [], "what it becomes is not known yet"
    assert joining(1, new_cluster=False).enter_blank(meta)  # type: ignore[arg-type]
    assert meta.saved == [False]


@pytest.mark.parametrize("new_cluster", [True, False])
def test_the_option_that_comes_too_late_is_named(
    new_cluster: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The first start without it has made a learner: a restart with it changes nothing."""
    joining(1, new_cluster=new_cluster).return_without_data()
    assert ("empty their data folders" in caplog.text) == new_cluster


@pytest.mark.parametrize("history", [1, 2])
def test_in_a_new_cluster_all_others_are_heard_first(history: int) -> None:
    """A voter if the last one holds nothing either, else a learner."""
    meta, mine = _MetaFile(), joining(1)
    for peer, heard in ((2, folder(1)), (3, folder(history))):
        assert not mine.enter_known(folder(1), Files(meta), made_id)  # type: ignore[arg-type]
        assert meta.saved == []
        mine.hear(peer, heard)
    assert mine.enter_known(folder(1), Files(meta), made_id)  # type: ignore[arg-type]
    assert meta.saved == [history == 1]


def test_the_first_node_draws_the_clusters_id_and_the_others_take_it_over() -> None:
    first, second = _MetaFile(), _MetaFile()
    one, two = joining(1), joining(2)
    for peer in (2, 3):
        one.hear(peer, folder(1))
    assert one.enter_known(folder(1), Files(first), made_id)  # type: ignore[arg-type]
    assert first.meta.cluster == made_id()
    for peer in (1, 3):
        two.hear(peer, folder(1))
    assert not two.enter_known(folder(1), Files(second), made_id)  # type: ignore[arg-type]
    assert second.saved == [], "node 1 has no id yet"
    two.hear(1, folder(1, cluster=7))
    assert two.enter_known(folder(1), Files(second), made_id)  # type: ignore[arg-type]
    assert second.meta.cluster == bytes([7]) * 16
    assert second.meta.voter


def test_an_id_that_somebody_has_is_taken_over_by_the_first_node_too() -> None:
    """It was founded already, and its folder was emptied before anybody led."""
    meta, one = _MetaFile(), joining(1)
    one.hear(2, folder(1, cluster=7))
    one.hear(3, folder(1))
    assert one.enter_known(folder(1), Files(meta), made_id)  # type: ignore[arg-type]
    assert meta.meta.cluster == bytes([7]) * 16


def test_nobody_is_believed_where_the_cluster_is_not_new() -> None:
    meta, mine = _MetaFile(), joining(1, new_cluster=False)
    mine.hear(2, folder(1))
    mine.hear(3, folder(1))
    assert not mine.enter_known(folder(1), Files(meta), made_id)  # type: ignore[arg-type]
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
    joined = run_program(PROGRAM, "serve", *words, "--cluster", three.config, "--node", "1")
    assert joined.returncode == 2, joined
    assert "a broker without a cluster" in joined.stderr
    for path in (tmp_path / "before" / "log").iterdir():
        assert (folder / "log" / path.name).read_bytes() == path.read_bytes()
