"""Whom a node connects to while it reads, in its log, how the members changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.config import load_cluster
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.replication.configuration import Configuration
from delaylog.replication.messages import Message
from delaylog.replication.meta import Meta
from delaylog.storage.errors import DiskFullError
from tests.replication.memory_disk import MemoryMeta

INCARNATION = 100
"""Node n serves with the folder 100 + n."""


class Transport:
    """Connections that are open; `versions` = the configurations that the others know."""

    def __init__(self, versions: dict[int, int]) -> None:
        self.versions = versions
        self.addresses: dict[int, tuple[str, int]] = {}
        self.removed: set[int] = set()
        self.told: list[int] = []

    def connected(self) -> frozenset[int]:
        return frozenset(self.versions)

    def folder_of(self, peer: int) -> SimpleNamespace | None:
        if peer not in self.versions:
            return None
        return SimpleNamespace(version=self.versions[peer], incarnation=INCARNATION + peer)

    def set_addresses(self, addresses: dict[int, tuple[str, int]]) -> None:
        self.addresses = {**addresses}

    def set_removed(self, removed: set[int], _: Message) -> None:
        self.removed = {*removed}

    def send(self, peer: int, _: Message) -> None:
        self.told.append(peer)

    def flush(self) -> None:
        pass

    def drop(self, peer: int, _: str) -> None:
        del self.versions[peer]


def contact(node: int, port: int = 0) -> dict[str, str]:
    return {"peer": f"127.0.0.1:{port or 7000 + node}", "http": f"127.0.0.1:{8000 + node}"}


def configuration(version: int, *voters: int, **more: Any) -> Configuration:
    contacts = {node: contact(node) for node in voters}
    return Configuration(voters, version=version, contacts=contacts, **more)


class Reader:
    """Node 2 with a cluster file of five, whose log comes from others."""

    def __init__(self, folder: Path, versions: dict[int, int]) -> None:
        (folder / "secret").write_text(bytes(range(32)).hex())
        (folder / "secret").chmod(0o600)
        lines = ['cluster = "three"', 'secret_file = "secret"']
        for node in range(1, 6):
            lines += [f"[members.{node}]", f'name = "n{node}"']
            lines += [f'{name} = "{value}"' for name, value in contact(node).items()]
        path = folder / "cluster.toml"
        path.write_text("\n".join(lines))
        self.transport = Transport(versions)
        self.replication = SimpleNamespace(configuration=Configuration(()), commit=0)
        self.passed: list[Configuration] = []
        epochs = SimpleNamespace(configurations=lambda _: self.passed)
        members = dict.fromkeys(range(1, 6), "a:1")
        self.meta = meta = MemoryMeta(Meta(bytes(16), 2, members, cluster=b"x" * 16))
        files = SimpleNamespace(
            replica=SimpleNamespace(epochs=epochs), meta=meta, last_begin=(1, 100)
        )
        file = load_cluster(str(path), node="2")
        member = SimpleNamespace(
            transport=self.transport,
            file=file,
            files=files,
            replication=self.replication,
            leading=False,
            node=SimpleNamespace(),
            folders=self,
        )
        self.known = KnownMembers(member, file)  # type: ignore[arg-type]

    @property
    def seen(self) -> dict[int, int]:
        """The folders that it remembers."""
        return self.meta.meta.met

    def has_met(self, folders: dict[int, int]) -> None:
        self.meta.save(replace(self.meta.meta, met=folders))

    def reads(self, configuration: Configuration, *, committed: bool) -> set[int]:
        """The nodes that it would connect to, itself included."""
        self.replication.configuration = configuration
        self.replication.commit = 101 if committed else 99
        self.known.look(self.replication)  # type: ignore[arg-type]
        return {*self.transport.addresses}


@pytest.mark.parametrize("committed", [False, True])
def test_a_blank_node_keeps_a_leader_that_its_first_members_did_not_know(
    tmp_path: Path, committed: bool
) -> None:
    """The founders' configuration comes first, and is committed long since."""
    reader = Reader(tmp_path, dict.fromkeys((1, 3, 4, 5), 7))
    assert reader.reads(configuration(1, 1, 2, 3), committed=committed) == {1, 2, 3, 4, 5}
    removed = {"removed": (4,)}
    assert reader.reads(configuration(5, 1, 2, 3, **removed), committed=committed) == {
        1,
        2,
        3,
        4,
        5,
    }
    assert (reader.transport.told, reader.transport.removed) == ([], set())
    found = reader.reads(configuration(7, 1, 2, 4, removed=(3, 5)), committed=True)
    assert (found, reader.transport.removed) == ({1, 2, 4}, {3, 5})
    assert {*reader.transport.told} == {3, 5}


def test_a_node_that_is_behind_takes_no_address_of_before(tmp_path: Path) -> None:
    """The cluster file that it was started with has the address of today."""
    reader = Reader(tmp_path, {1: 7, 4: 7})
    before = configuration(1, 1, 2, 3)
    before.contacts[1] = contact(1, 9999)
    reader.reads(before, committed=True)
    assert reader.transport.addresses[1] == ("127.0.0.1", 7001)


def test_a_node_that_hears_that_it_is_behind_connects_to_all_of_its_file(tmp_path: Path) -> None:
    """When it started nobody was there to say so."""
    reader = Reader(tmp_path, {})
    old = configuration(1, 1, 2, 3)
    assert reader.reads(old, committed=True) == {1, 2, 3}
    reader.transport.versions[1] = 7
    assert reader.reads(old, committed=True) == {1, 2, 3, 4, 5}
    assert reader.reads(configuration(7, 1, 2, 4), committed=True) == {1, 2, 4}


def test_a_change_that_was_cut_is_said_no_more(tmp_path: Path) -> None:
    """Others heard of it when they connected, and would think that they are behind."""
    reader = Reader(tmp_path, {1: 3, 3: 3})
    reader.reads(configuration(3, 1, 2, 3), committed=True)
    reader.reads(configuration(4, 1, 2, 3, 4), committed=False)
    assert reader.transport.connected() == {1, 3}
    reader.reads(configuration(3, 1, 2, 3), committed=True)
    assert reader.transport.connected() == set()


# --------------------------------------------------------------------------- folders


def test_a_blank_node_remembers_whom_it_met_while_it_reads_how_they_were_added(
    tmp_path: Path,
) -> None:
    """Two voters of five lost their disks, and each must remember the other's new folder."""
    reader = Reader(tmp_path, dict.fromkeys((1, 3, 4, 5), 7))
    reader.has_met({node: INCARNATION + node for node in (1, 3, 4, 5)})
    reader.reads(configuration(1, 1, 2, 3), committed=True)
    reader.passed = [configuration(6, 1, 2, 3, 4)]
    reader.reads(configuration(7, 1, 2, 3, 4, 5), committed=True)
    assert {*reader.seen} == {1, 3, 4, 5}


@pytest.mark.parametrize("connected", [True, False])
def test_the_folder_of_a_node_that_was_removed_is_forgotten(
    tmp_path: Path, connected: bool
) -> None:
    """Also where it was added again meanwhile: then it has another folder."""
    reader = Reader(tmp_path, dict.fromkeys((1, 3, 4) if connected else (1, 3), 5))
    reader.has_met({1: INCARNATION + 1, 3: INCARNATION + 3, 4: INCARNATION})
    reader.reads(configuration(5, 1, 2, 3, 4), committed=True)
    assert {*reader.seen} == {1, 3, 4}
    reader.passed = [configuration(6, 1, 2, 3, removed=(4,))]
    reader.reads(configuration(7, 1, 2, 3, 4), committed=True)
    assert {*reader.seen} == {1, 3}


def test_a_node_that_was_removed_is_forgotten_though_it_is_connected(tmp_path: Path) -> None:
    reader = Reader(tmp_path, dict.fromkeys((1, 3, 4), 6))
    reader.has_met({node: INCARNATION + node for node in (1, 3, 4)})
    reader.reads(configuration(5, 1, 2, 3, 4), committed=True)
    reader.reads(configuration(6, 1, 2, 3, removed=(4,)), committed=True)
    assert {*reader.seen} == {1, 3}


def test_a_node_that_was_removed_is_forgotten_once_the_disk_has_room(tmp_path: Path) -> None:
    """Until then it would be refused when it is added again with another folder."""
    reader = Reader(tmp_path, dict.fromkeys((1, 3), 6))
    reader.has_met({node: INCARNATION + node for node in (1, 3, 4)})
    reader.reads(configuration(5, 1, 2, 3, 4), committed=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader.meta, "save", _full)
        with pytest.raises(DiskFullError):
            reader.reads(configuration(6, 1, 2, 3, removed=(4,)), committed=True)
    reader.passed = []
    assert reader.reads(reader.replication.configuration, committed=True) == {1, 2, 3}
    assert {*reader.seen} == {1, 3}


def _full(meta: Meta) -> None:
    raise DiskFullError("no space left on device")
