"""Folders and logs that earlier releases made are opened, for ever, and show what they showed then.

Each release has a folder here, written by `make.py` in a checkout of it, and never written again
once it is released. A change of the code that makes one of these tests fail breaks the folders of
users: give the change a feature level (docs/FORMATS.md), and leave the data alone.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.limits import Limits
from delaylog.storage.layout import FrameKind
from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.broker.engine.host import Host
from tests.golden import scene

HERE = Path(__file__).parent
RELEASES = ("0.2.0",)
LIMITS = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)


def unpack_archive(release: str, name: str, target: Path) -> Path:
    """The folders of one archive."""
    with tarfile.open(HERE / release / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target


def subset(shown: Any, stored: Any, path: str = "") -> None:
    """`shown` says all that `stored` says. A later release may show more members."""
    if isinstance(stored, dict):
        for name, value in stored.items():
            assert name in shown, f"{path}.{name}"
            subset(shown[name], value, f"{path}.{name}")
    else:
        assert shown == stored, path


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("folder", ["clean", "killed"])
def test_a_folder_shows_what_it_showed_then(tmp_path: Path, release: str, folder: str) -> None:
    """Every state, group, claim and key, and each message at its time."""
    unpack_archive(release, "folders", tmp_path)
    stored = json.loads((HERE / release / "seen.json").read_text())
    host = Host(tmp_path / folder, now_ms=stored["now_ms"], limits=LIMITS)
    try:
        shown = json.loads(json.dumps(scene.view(host, stored["told"])))
    finally:
        host.close()
    subset(shown, stored["seen"][folder])
    assert shown["deliveries"].keys() == stored["seen"][folder]["deliveries"].keys()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("folder", ["clean", "killed"])
def test_a_folder_goes_on_after_it_was_opened(tmp_path: Path, release: str, folder: str) -> None:
    """What the present program adds to an old folder is there at its next start, with the old."""
    unpack_archive(release, "folders", tmp_path)
    stored = json.loads((HERE / release / "seen.json").read_text())
    host = Host(tmp_path / folder, now_ms=stored["now_ms"], limits=LIMITS)
    try:
        host.send([b"new"], ids=["new"], delay=scene.HOUR)
        for again in (host.crash, host.checkpoint, host.crash, host.checkpoint, host.restart):
            again()
            assert host.find(["new"])[0] is not None
            assert host.find(["far-" * 9 + "8"])[0] is not None
            # An id of then is known: a second message of that id takes the place of the first.
        before = host.topic.default.counts.living
        host.send([b"in place of it"], ids=["far-" * 9 + "8"], delay=scene.HOUR)
        assert host.topic.default.counts.living == before
    finally:
        host.close()


@pytest.mark.parametrize("release", RELEASES)
def test_the_frames_of_a_release_are_decoded_as_they_were_then(
    tmp_path: Path, release: str
) -> None:
    """Bytes in, rows out: what `decode_send` and `place_rows` make of a SEND frame is part of the
    log's format, as are the payloads of all other kinds.
    """
    unpack_archive(release, "folders", tmp_path)
    unpack_archive(release, "cluster", tmp_path)
    stored = json.loads((HERE / release / "frames.json").read_text())
    kinds: Counter[str] = Counter()
    for name in ("clean", "killed", "n1"):
        shown = list(scene.shown_log(tmp_path / name))
        kinds.update(one[1] for one in shown)
        assert json.loads(json.dumps(shown)) == stored[name]
    assert {kind.name for kind in FrameKind if kind <= FrameKind.HELD} - kinds.keys() == set()


@pytest.mark.parametrize("release", RELEASES)
def test_a_cluster_of_a_release_goes_on_with_the_present_program(
    tmp_path: Path, release: str
) -> None:
    """Three nodes that were killed: what was pending then is pending, and nothing else."""
    unpack_archive(release, "cluster", tmp_path)
    acked = json.loads((HERE / release / "cluster.json").read_text())["acked"]
    nodes = ThreeNodes(tmp_path)
    scene.give_addresses(nodes)
    try:
        nodes.start()
        near = [f"near-{k}" for k in range(20)]
        for name in (*near, *(f"far-{k}" for k in range(8))):
            answer = nodes.on_leader("GET", f"/v1/topics/t/messages/{name}")
            if name in (*acked, "far-7"):
                assert answer.status == 404 or answer.json["state"] in ("acked", "cancelled"), name
            else:
                assert answer.json["state"] in ("waiting", "ready"), name
        got: list[str] = []

        def taken() -> int:
            """What one more call takes: one message of a key is in work at a time."""
            part = nodes.on_leader("POST", "/v1/topics/t/receive", {"max": 99}).json["messages"]
            if part:
                receipts = [one["receipt"] for one in part]
                nodes.on_leader("POST", "/v1/topics/t/ack", {"receipts": receipts})
            got.extend(one["id"] for one in part if one["id"] in near)
            return len(part)

        nodes.until(lambda: taken() == 0 and len(got) >= len(set(near) - set(acked)))
        assert sorted(got) == sorted(set(near) - set(acked))
        assert nodes.running == list(NODES)
    finally:
        nodes.clean_up()
