"""`delaylog cluster certs`: what it makes, what it renews, and what it does not touch.

Method: the command on folders; the certificates are judged as brokers and nodes judge them.
"""

from __future__ import annotations

import json
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.main import main
from delaylog.broker.cluster.peers import PeerTls
from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.tls.certificates import Hosts, mutual_refusal
from delaylog.broker.host.tls.client_tls import ClientTls
from delaylog.broker.host.tls.server_tls import ServerTls

CLUSTER = """
cluster = "orders"
secret_file = "not.there"
[members.1]
name = "alpha"
peer = "10.0.0.1:8712"
http = "https://alpha.example:8711"
resp = "[2001:db8::1]:8713"
[members.2]
peer = "10.0.0.2:8712"
http = "https://10.0.0.2:8711"
[tls]
ca = "nodes-ca.pem"
cert = "node.pem"
key = "node.key"
"""
Certs = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "set"


@pytest.fixture
def certs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Certs:
    """Runs the command; returns status, its JSON and its errors."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)

    def run(*words: str) -> tuple[int, Any, str]:
        cluster = str(tmp_path / "cluster.toml")
        status = main(["cluster", "certs", str(folder), "--cluster", cluster, "--json", *words])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else None, said.err

    return run


def server(folder: Path, member: str) -> ServerTls:
    place = folder / member
    tls = ServerTls(TlsConfig(str(place / "server.pem"), str(place / "server.key")))
    tls.roots = ClientTls(str(place / "servers-ca.pem")).roots
    return tls


def node(folder: Path, member: str) -> PeerTls:
    place = folder / member
    return PeerTls(*(str(place / name) for name in ("nodes-ca.pem", "node.pem", "node.key")))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


def test_a_set(certs: Certs, folder: Path) -> None:
    """Names of all addresses, both purposes, and keys that only their owner may read."""
    status, report, _ = certs("--host", "lb.example")
    assert (status, len(report["made"]), report["kept"]) == (0, 16, [])
    for member, told in (
        ("alpha", ("alpha", "alpha.example", "2001:db8::1", "lb.example")),
        ("node-2", ("node-2", "10.0.0.2", "lb.example")),
    ):
        tls = server(folder, member)
        tls.hosts = Hosts(told=told)
        assert not tls.faults()
        assert tls.ends()["server"] == pytest.approx(time.time() + 90 * 86_400, abs=600)
    one, two = node(folder, "alpha"), node(folder, "node-2")
    one.hosts = Hosts(others=("10.0.0.1",))
    assert not one.faults()
    assert not mutual_refusal(one.server, two.client)
    assert not mutual_refusal(two.server, one.client)
    keys = [*folder.rglob("*.key")]
    assert len(keys) == 6
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_again_and_renewed(certs: Certs, folder: Path, tmp_path: Path) -> None:
    """A second run changes nothing; --renew keeps the authorities; a new member is added."""
    certs()
    before = contents(folder)
    assert certs()[1]["made"] == []
    assert contents(folder) == before
    more = '[members.3]\npeer = "10.0.0.3:8712"\nhttp = "10.0.0.3:8711"\n'
    (tmp_path / "cluster.toml").write_text(CLUSTER + more)
    assert {each.partition("/")[0] for each in certs()[1]["made"]} == {"node-3"}
    status, report, _ = certs("--renew", "--days", "5")
    assert (status, len(report["made"])) == (0, 12)
    after = contents(folder)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {
        "made.json",
        *(f"{member}/{kind}" for member in ("alpha", "node-2") for kind in PAIRS),
    }
    assert node(folder, "alpha").ends()["node"] < time.time() + 6 * 86_400


PAIRS = ("server.pem", "server.key", "node.pem", "node.key")


@pytest.mark.parametrize("name", ["alpha/server.pem", "alpha/node.key", "nodes-ca.pem"])
def test_what_it_did_not_make_stays(certs: Certs, folder: Path, name: str) -> None:
    """Neither a file that was changed since nor one of somebody else is overwritten."""
    certs()
    (folder / name).write_bytes(b"mine")
    status, _, error = certs("--renew")
    assert status == 2
    assert f"{folder / name} was not made by this command, or was changed since" in error
    assert (folder / name).read_bytes() == b"mine"


def test_a_folder_with_files_of_others(certs: Certs, folder: Path) -> None:
    (folder / "alpha").mkdir(parents=True)
    (folder / "alpha" / "server.pem").write_bytes(b"mine")
    status, _, error = certs()
    assert (status, "was not made by this command" in error) == (2, True)
    assert (folder / "alpha" / "server.pem").read_bytes() == b"mine"


def test_wrong_words(
    certs: Certs, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "--days must be from 1 to 3650, not 0" in certs("--days", "0")[2]
    certs()
    (folder / "nodes-ca.key").unlink()
    assert "nodes-ca.key is missing" in certs()[2]
    (tmp_path / "cluster.toml").write_text("members = 1")
    assert certs()[0] == 2
    monkeypatch.setitem(sys.modules, "cryptography", None)
    status, _, error = certs()
    assert (status, "needs the package cryptography" in error) == (2, True)
    assert "pip install 'delaylog[tls]'" in error


@pytest.mark.parametrize("host", ["", "b\u00fccher.example", "a b", "a,DNS:b"])
def test_a_host_that_is_no_name_is_refused(certs: Certs, host: str) -> None:
    status, _, error = certs("--host", host)
    assert status == 2
    assert "is no address and no name of a host" in error


def test_another_authority_in_a_members_folder_is_not_kept(certs: Certs, folder: Path) -> None:
    """The member would refuse all others."""
    certs()
    copy = folder / "alpha" / "nodes-ca.pem"
    copy.write_bytes((folder / "alpha" / "servers-ca.pem").read_bytes())
    status, _, error = certs()
    assert status == 2
    assert f"{copy} was not made by this command, or was changed since" in error


def test_a_damaged_list_of_what_was_made(certs: Certs, folder: Path) -> None:
    certs()
    (folder / "made.json").write_text("[1]")
    status, _, error = certs("--renew")
    assert status == 2
    assert "made.json is damaged" in error
