"""The vote file: both values at once, old or new after a crash, and never half believed.

Method: pin its bytes; cut every file operation of an update with each way in which unsynced sectors
survive; flip every byte.
"""

from __future__ import annotations

import pytest

from delaylog.replication.errors import TermFileDamagedError
from delaylog.replication.raftos_oracle.settings import Roster
from delaylog.replication.raftos_oracle.term_file import TermFile
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

PATH = "data/vote"
MEMBERS = {0: ("10.0.0.1", 7_001), 1: ("10.0.0.2", 7_001), 4: ("10.0.0.3", 7_001)}
ROSTER = Roster(1, MEMBERS)
A, B = "10.0.0.1:7001", "10.0.0.3:7001"


def folder() -> FakeDisk:
    disk = FakeDisk()
    disk.mkdir("data")
    disk.sync_all()
    return disk


def test_known_bytes() -> None:
    disk = folder()
    TermFile(disk, PATH, ROSTER).update({"term": 0x1234, "voted_for": B})
    assert disk.open(PATH).pread(99, 0).hex() == (
        "444c564f010000003412000000000000050000000000000000000000f0ea8e07"
    )


def test_what_it_keeps() -> None:
    disk = folder()
    file = TermFile(disk, PATH, ROSTER)
    assert (file.term, file.voted_for) == (0, None)
    assert file.exists("term")
    file.update({"term": 3})
    file["voted_for"] = A
    again = TermFile(disk, PATH, ROSTER)
    assert (again.term, again.voted_for) == (3, A)
    again.update({"term": 4})
    assert (again.term, again.voted_for) == (4, None), "a vote is of its term"


def test_a_vote_is_not_changed_and_a_term_never_falls() -> None:
    file = TermFile(folder(), PATH, ROSTER)
    file.update({"term": 3, "voted_for": A})
    file.update({"term": 3, "voted_for": A})
    for wrong in ({"voted_for": B}, {"voted_for": None}, {"term": 2}):
        with pytest.raises(AssertionError):
            file.update(wrong)
    assert (file.term, file.voted_for) == (3, A)


def test_the_vote_is_for_a_node_and_not_for_an_address() -> None:
    disk = folder()
    TermFile(disk, PATH, ROSTER).update({"term": 3, "voted_for": B})
    moved = Roster(1, {**MEMBERS, 4: ("10.9.9.9", 1)})
    assert TermFile(disk, PATH, moved).voted_for == "10.9.9.9:1"
    gone = Roster(1, {0: MEMBERS[0], 1: MEMBERS[1], 2: MEMBERS[4]})
    file = TermFile(disk, PATH, gone)
    assert file.voted_for == "#4", "to nobody else in this term"
    assert gone.index_of("#4") == 4


@pytest.mark.parametrize("survival", SURVIVALS)
def test_an_update_is_old_or_new(survival: Survival) -> None:
    for crash_at in range(1, 12):
        disk = folder()
        file = TermFile(disk, PATH, ROSTER)
        file.update({"term": 3, "voted_for": A})
        disk.crash_at = disk.count + crash_at
        done = False
        try:
            file.update({"term": 5, "voted_for": B})
            done = True
        except DiskCrashed:
            assert (file.term, file.voted_for) == (3, A), "nothing is believed before it is kept"
        found = TermFile(disk.restart(survival), PATH, ROSTER)
        standing = (found.term, found.voted_for)
        assert standing == (5, B) if done else standing in ((3, A), (5, B))
        found.update({"term": 6})  # whatever was left aside is no hindrance


def test_damage_is_an_error_that_says_what_to_do() -> None:
    disk = folder()
    TermFile(disk, PATH, ROSTER).update({"term": 3, "voted_for": A})
    whole = disk.open(PATH).pread(99, 0)
    cuts = [whole[:size] for size in range(len(whole))]
    flips = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for damaged in [*cuts, *flips, whole + b"x"]:
        broken = folder()
        broken.open(PATH, create=True).pwritev([damaged], 0)
        with pytest.raises(TermFileDamagedError, match="data/vote is damaged: remove it") as caught:
            TermFile(broken, PATH, ROSTER)
        assert caught.value.path == PATH
