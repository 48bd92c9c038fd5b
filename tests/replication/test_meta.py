"""The meta file: replaced as a whole or not at all, and never half believed.

Method: cut every file operation of a save with each way in which unsynced sectors survive; flip
every byte; hand in sealed nonsense.
"""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from delaylog.replication.errors import ClusterError, MetaDamagedError
from delaylog.replication.meta import (
    INCARNATIONS_MAX,
    META_MAGIC,
    Meta,
    MetaFile,
    decode_meta,
    encode_meta,
    load_meta,
)
from delaylog.storage.errors import OlderFormatError
from delaylog.storage.layout import seal_file
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival

PATH = "data/meta"
CLUSTER = bytes(range(16))
META = Meta(CLUSTER, 1, {0: "a:1", 1: "b:2", 2: "c:3"}, promised_epoch=0x50001)


def folder() -> FakeDisk:
    disk = FakeDisk()
    disk.mkdir("data")
    disk.sync_all()
    return disk


def test_known_bytes() -> None:
    meta = replace(META, cluster=CLUSTER, incarnations=(1, 2), met={0: 5}, known_to={2: 1})
    assert encode_meta(meta).hex() == (
        "444c4d450100000000000000000000000000000000000000a900000070a4fa1b"
        "8ba6666f726d617401aa636c75737465725f6964c410000102030405060708090a0b0c0d0e0f"
        "a76e6f64655f696401a76d656d626572738300a3613a3101a3623a3202a3633a33"
        "ae70726f6d697365645f65706f6368ce00050001a5766f746572c3"
        "a7636c7573746572c410000102030405060708090a0b0c0d0e0f"
        "ac696e6361726e6174696f6e73920102a36d6574810005"
        "a86c6561726e65727380a86b6e6f776e5f746f810201"
    )
    assert decode_meta(encode_meta(meta), PATH) == meta


def test_the_bytes_of_release_0_1_0_are_refused() -> None:
    raw = bytes.fromhex(
        "444c4d45010000000000000000000000000000000000000062000000c5537814"
        "86a6666f726d617401aa636c75737465725f6964c410000102030405060708090a0b0c0d0e0f"
        "a76e6f64655f696401a76d656d626572738300a3613a3101a3623a3202a3633a33"
        "ae70726f6d697365645f65706f6368ce00050001a5766f746572c3"
    )
    with pytest.raises(OlderFormatError, match=PATH):
        decode_meta(raw, PATH)


def test_a_folder_remembers_so_many_incarnations() -> None:
    meta = META
    for incarnation in range(1, 300):
        meta = meta.reborn(incarnation)
    assert meta.incarnations == tuple(range(300 - INCARNATIONS_MAX, 300))


def test_no_file_says_nothing() -> None:
    assert load_meta(folder(), PATH) is None


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_save_is_old_or_new(survival: Survival) -> None:
    newer = META.promise(0x60002)
    for crash_at in range(1, 12):
        disk = folder()
        file = MetaFile.make(disk, PATH, META)
        disk.crash_at = disk.count + crash_at
        try:
            file.save(newer)
            saved = True
        except DiskCrashed:
            saved = False
        found = load_meta(disk.restart(survival, crash_at), PATH)
        assert found == newer if saved else found in (META, newer)


def test_what_a_crash_left_aside_does_not_disturb() -> None:
    disk = folder()
    disk.put(f"{PATH}.tmp", b"half")
    MetaFile.make(disk, PATH, META)
    assert load_meta(disk, PATH) == META


def test_every_damaged_byte_is_seen() -> None:
    raw = encode_meta(META)
    for at in range(len(raw)):
        with pytest.raises(MetaDamagedError):
            decode_meta(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], PATH)
        with pytest.raises(MetaDamagedError):
            decode_meta(raw[:at], PATH)


@pytest.mark.parametrize(
    "members",
    [
        {"format": 2},
        {"format": 1, "incarnations": []},
        [],
        {"format": 1, "cluster_id": b"short", "node_id": 1, "incarnations": []},
        msgpack.unpackb(encode_meta(META)[32:], strict_map_key=False) | {"node_id": 7},
        msgpack.unpackb(encode_meta(META)[32:], strict_map_key=False) | {"members": {0: "", 1: ""}},
    ],
)
def test_sealed_nonsense_is_damage(members: object) -> None:
    with pytest.raises(MetaDamagedError, match="data/meta"):
        decode_meta(seal_file(META_MAGIC, msgpack.packb(members)), PATH)


def test_promises_only_rise() -> None:
    assert META.promise(0x50002).promised_epoch == 0x50002
    with pytest.raises(AssertionError):
        META.promise(META.promised_epoch)


def test_a_learner_votes_once_it_is_let_in() -> None:
    learner = Meta.learner(CLUSTER, 1, META.members)
    assert (learner.voter, learner.promised_epoch) == (False, 0)
    assert learner.readmitted() == replace(learner, voter=True)


def test_who_is_not_a_member_is_refused() -> None:
    with pytest.raises(ClusterError):
        Meta(CLUSTER, 9, META.members)
    with pytest.raises(ClusterError):
        Meta(b"short", 1, META.members)
    with pytest.raises(ClusterError):
        Meta(CLUSTER, 0, {0: "a", 1: "b"})
