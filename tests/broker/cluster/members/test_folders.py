"""Data folders that are not the newest of their node, or of another cluster, by the words of peers.

Method: two members' `Folders` over hand-made metas; one judges what the other says.
"""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.cluster.members.folders import Folders, StaleFolderError, history_of
from delaylog.broker.cluster.peers.handshake import HandshakeError, Refused
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTable
from delaylog.replication.messages import FolderIdentity, Hello
from delaylog.replication.meta import Meta
from delaylog.storage.errors import DiskFullError

NAME = bytes(16)
IDS = b"A" * 16, b"B" * 16


class MetaInMemory:
    """What is saved is there."""

    path = "data/meta"

    def __init__(self, node: int) -> None:
        self.meta = Meta(NAME, node, {0: "a:1", 1: "b:1", 2: "c:1"}).reborn(100 * (node + 1))
        self.saves = 0

    def save(self, meta: Meta) -> None:
        self.meta = meta
        self.saves += 1


class Side:
    """One node."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.file = MetaInMemory(node)
        self.end = 500
        self.promised = 0
        configuration = Configuration((0, 1, 2), version=3)
        self.replication: Any = SimpleNamespace(configuration=configuration, leader=None)
        self.stale: list[StaleFolderError] = []
        self.folders = Folders(
            meta=lambda: self.file,  # type: ignore[arg-type,return-value]
            hello=self.hello,
            history=lambda: bytes(16),
            version=self.version,
            replication=lambda: self.replication,
            on_stale=self.stale.append,
        )

    def version(self) -> int:
        return 0 if self.replication is None else self.replication.configuration.version

    def hello(self) -> Hello:
        return Hello(NAME, self.node, self.file.meta.voter, self.promised, self.end)

    def meets(self, other: Side, connected: FolderIdentity | None = None) -> None:
        said = other.folders.identity(self.node)
        self.folders.judge(other.node, other.hello(), said, connected)

    def copied(self) -> Side:
        """A process on an old copy of its folder."""
        copy = Side(self.node)
        copy.file.meta = self.file.meta
        return copy

    def starts(self, incarnation: int) -> None:
        self.file.meta = self.file.meta.reborn(incarnation)


def blank(node: int = 2) -> Side:
    """A node that has lost its disk."""
    side = Side(node)
    side.file.meta = Meta.learner(NAME, node, {}).reborn(999)
    return side


@pytest.fixture
def pair() -> tuple[Side, Side]:
    one, two = Side(1), Side(2)
    one.meets(two)
    two.meets(one)
    return one, two


def refused(side: Side, other: Side, connected: FolderIdentity | None = None) -> str:
    with pytest.raises(HandshakeError) as caught:
        side.meets(other, connected)
    assert caught.value.reason in (Refused.FOLDER, Refused.CLUSTER)
    return str(caught.value)


def test_who_was_met_is_remembered_once(pair: tuple[Side, Side]) -> None:
    one, two = pair
    assert one.file.meta.met == {2: 300}
    saves = one.file.saves
    one.meets(two)
    assert one.file.saves == saves, "nothing new: nothing is written"
    two.starts(301)
    one.meets(two)
    two.meets(one)
    assert one.file.meta.met == {2: 301}


def test_who_cannot_be_remembered_is_met_again_later(pair: tuple[Side, Side]) -> None:
    """The disk is full for a while."""
    one, two = pair
    two.starts(301)
    save, one.file.save = one.file.save, full  # type: ignore[method-assign]
    assert "cannot be remembered: no space" in refused(one, two)
    assert one.folders.unsaved == 1
    one.file.save = save  # type: ignore[method-assign]
    one.meets(two)
    assert one.file.meta.met == {2: 301}


def full(meta: Meta) -> None:
    raise DiskFullError("no space")


def test_starts_that_nobody_saw_do_no_harm(pair: tuple[Side, Side]) -> None:
    one, two = pair
    for incarnation in range(301, 320):
        two.starts(incarnation)
    one.meets(two)
    two.meets(one)


def test_an_old_copy_is_recognised_by_both(pair: tuple[Side, Side]) -> None:
    """The copy was made, the node went on with its folder, and then the copy was put back."""
    one, two = pair
    copy = two.copied()
    two.starts(301)
    one.meets(two)
    copy.starts(302)
    assert "not the newest" in refused(one, copy)
    assert "old copy" in refused(copy, one)
    (error,) = copy.stale
    assert "another process serves as node 2" in str(error)
    assert one.stale == []


def test_an_old_copy_does_not_speak_against_a_disk_that_was_lost_since(
    pair: tuple[Side, Side],
) -> None:
    """Node 1 lost its disk after the copy of node 2 was made, and is a voter again."""
    _, two = pair
    copy = two.copied()
    copy.promised = 7
    two.starts(301)
    new = blank(1)
    new.meets(two)
    two.meets(new)
    new.file.meta = new.file.meta.readmitted()
    new.promised = two.promised = 9
    copy.starts(302)
    assert "node 2 remembers an earlier data folder of node 1" in refused(new, copy)
    assert new.stale == []
    assert "old copy" in refused(copy, new)
    assert len(copy.stale) == 1
    # Neither knows better.
    copy.stale.clear()
    copy.promised = 9
    assert "earlier data folder" in refused(new, copy)
    assert "earlier data folder" in refused(copy, new)
    assert new.stale == copy.stale == []


def test_a_learner_that_was_away_takes_whom_the_voters_have_let_in(pair: tuple[Side, Side]) -> None:
    """While it was away the other node lost its disk, and counts again by now."""
    _, two = pair
    two.replication.configuration = Configuration((0, 1), learners=(2,), version=3)
    two.promised = 7
    new = Side(1)
    new.file.meta = Meta(NAME, 1, {}).reborn(999)
    new.promised = 9
    assert "earlier data folder" in refused(new, two)
    two.meets(new)
    new.meets(two)
    assert new.stale == two.stale == []


def test_a_copy_of_a_node_that_nobody_met_since_is_taken(pair: tuple[Side, Side]) -> None:
    """Nobody can tell, and the module says so."""
    one, two = pair
    copy = two.copied()
    two.starts(301)
    copy.starts(302)
    one.meets(copy)


def test_an_old_copy_comes_back_as_a_learner(pair: tuple[Side, Side]) -> None:
    one, two = pair
    copy = two.copied()
    two.starts(301)
    one.meets(two)
    copy.starts(302)
    copy.file.meta = replace(copy.file.meta, voter=False)
    copy.meets(one)
    one.meets(copy)
    assert one.file.meta.learners == {2: 302}
    # It is let in again as a voter, and says so.
    copy.file.meta = copy.file.meta.readmitted()
    one.meets(copy)
    copy.meets(one)
    assert one.file.meta.met == {2: 302}
    assert "not the newest" in refused(one, two), "now the other folder is the older one"


def test_a_disk_that_was_not_mounted_costs_nothing(pair: tuple[Side, Side]) -> None:
    """Its node comes blank, as a learner that promises nothing, and then with its folder again."""
    one, two = pair
    wiped = blank()
    one.meets(wiped)
    wiped.meets(one)
    two.starts(301)
    one.meets(two)
    two.meets(one)
    assert two.stale == []
    assert (one.file.meta.met, one.file.meta.learners) == ({2: 301}, {})


def test_what_another_node_remembers_is_never_forgotten(pair: tuple[Side, Side]) -> None:
    """A peer that is away while a node starts over and over knows it when it is back."""
    one, two = pair
    for incarnation in range(1_000, 2_000):
        two.starts(incarnation)
    one.meets(two)
    two.meets(one)


def test_a_second_process_does_not_take_the_place_of_the_first(pair: tuple[Side, Side]) -> None:
    """Nor when it is a blank learner; the first one may connect again as it likes."""
    one, two = pair
    connected = two.folders.identity(1)
    wiped = blank()
    assert "two processes serve as node 2" in refused(one, wiped, connected)
    one.meets(two, connected)
    two.starts(301)
    one.meets(two, connected)


def test_a_wiped_folder_is_a_new_one_once_its_node_is_away(pair: tuple[Side, Side]) -> None:
    one, _ = pair
    wiped = blank()
    one.meets(wiped)
    wiped.meets(one)
    assert wiped.stale == []
    assert one.folders.seen == {2: 999}


def test_what_was_acknowledged_and_is_gone_is_noticed_by_both(pair: tuple[Side, Side]) -> None:
    """A disk that lied about its sync: the incarnation is right, and the log is too short."""
    one, two = pair
    one.promised = two.promised = 7
    progress = {2: SimpleNamespace(match=500, counts=True)}
    one.replication.leader = SimpleNamespace(epoch=7, progress=progress)
    one.meets(two)
    two.meets(one)
    two.end = 400
    assert "acknowledged 500 bytes of log and holds 400" in refused(one, two)
    assert "this folder holds 400" in refused(two, one)
    assert len(two.stale) == 1
    # In a later epoch the end of a log may have been cut for good reason.
    two.promised = 8
    two.stale.clear()
    two.meets(one)
    one.meets(two)


def test_a_folder_of_another_cluster_of_the_same_name_is_refused(pair: tuple[Side, Side]) -> None:
    one, two = pair
    one.file.meta = replace(one.file.meta, cluster=IDS[0])
    one.meets(two)
    two.meets(one)
    two.file.meta = replace(two.file.meta, cluster=IDS[1])
    assert "needs an empty data folder" in refused(one, two)
    assert IDS[0].hex() in refused(two, one)
    assert two.stale == []


def test_nothing_is_written_before_it_is_known_what_a_folder_becomes(
    pair: tuple[Side, Side],
) -> None:
    one, _ = pair
    fresh = Side(0)
    fresh.replication = None
    fresh.meets(one)
    assert fresh.file.saves == 0


def test_a_history_leaves_out_the_newest_leadership_only() -> None:
    """Restored backups of one origin differ in nothing else."""
    mine = ((1, 0), (2, 100), (700, 200))
    assert history_of(mine, 264, (1, 2)) == history_of(((1, 0), (2, 100), (900, 200)), 264, (1, 2))
    others = [
        (((1, 0), (3, 100), (700, 200)), 264, (1, 2)),
        (((1, 0), (2, 100), (700, 201)), 264, (1, 2)),
        (mine, 265, (1, 2)),
        (mine, 264, (1, 2, 3)),
        ((), 0, (1, 2)),
    ]
    assert len({history_of(mine, 264, (1, 2)), *(history_of(*other) for other in others)}) == 6


def test_a_history_does_not_change_once_a_node_takes_part() -> None:
    """It forgets epochs that lie in front of its log, as that of a restored backup begins."""
    table = EpochTable([(1 << 16, 0), (2 << 16, 300), (3 << 16, 900), (4 << 16, 1_500)])
    replica = SimpleNamespace(epochs=table, end=2_000)
    parts = dict.fromkeys((field.name for field in fields(MemberFiles)), None)
    parts |= {"replica": replica, "physical": SimpleNamespace(first_position=1_000)}
    files = MemberFiles(**parts)  # type: ignore[arg-type]
    before = files.history((1, 2, 3))
    table.forget(1_000)
    assert files.history((1, 2, 3)) == before
