"""`delaylog cluster certs`: what it makes, what it renews, and what it does not touch.

Method: the command on folders; the certificates are judged as brokers and nodes judge them.
"""

from __future__ import annotations

import json
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cli import cluster_certs
from delaylog.broker.cli.main import main
from delaylog.broker.cluster.peers import PeerTls
from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.system.private_files import replace_file
from delaylog.broker.host.tls.certificates import Hosts, mutual_refusal
from delaylog.broker.host.tls.contexts import ClientTls, ServerTls

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


class Interrupted(BaseException):
    """A process that ends in the middle."""


class Interrupting:
    """Ends the process before it replaces its nth file."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, path: Path, content: bytes, mode: int) -> None:
        self.left -= 1
        if not self.left:
            raise Interrupted
        replace_file(path, content, mode)


@pytest.mark.parametrize(
    ("first", "again"),
    [((), ()), (("--renew",), ()), (("--renew",), ("--renew",))],
    ids=["made", "renewed", "renewed twice"],
)
def test_a_set_is_whole_after_an_interruption(
    certs: Certs,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[str, ...],
    again: tuple[str, ...],
) -> None:
    """Between any two files that are written: the next run finishes or repeats the work."""
    if first:
        certs()
    for nth in range(1, 40):
        if not first:
            shutil.rmtree(folder, ignore_errors=True)
        with monkeypatch.context() as patch, suppress(Interrupted):
            patch.setattr(cluster_certs, "replace_file", Interrupting(nth))
            assert certs(*first)[0] == 0
            break
        assert certs(*again)[0] == 0
        for member in ("alpha", "node-2"):
            assert not server(folder, member).faults()
            assert not node(folder, member).faults()
    assert nth > 16


PAIRS = ("server.pem", "server.key", "node.pem", "node.key")


def test_what_was_kept_and_is_not_valid(
    certs: Certs, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each certificate the report says what clients refuse it for, and --renew mends it."""
    certs("--host", "lb.example")
    assert certs()[:2] == (0, {**certs()[1], "faults": []})
    moved = CLUSTER.replace("//alpha.example", "//beta.example").replace("10.0.0.2", "10.0.0.9")
    (tmp_path / "cluster.toml").write_text(moved)
    status, report, _ = certs()
    assert (status, report["made"], len(report["faults"])) == (1, [], 3)
    assert report["faults"][0].startswith("alpha/server.pem does not name beta.example; it names ")
    assert {each.partition(" ")[0] for each in report["faults"]} == {
        *("alpha/server.pem", "node-2/server.pem", "node-2/node.pem")
    }
    assert (certs("--renew")[0], certs()[1]["faults"]) == (0, [])
    for days, status, text in ((80, 0, " expires on "), (91, 1, " has expired: it ended on ")):
        later = SimpleNamespace(now=lambda zone, d=days: datetime.now(zone) + timedelta(days=d))
        monkeypatch.setattr(cluster_certs, "datetime", later)
        found, report, _ = certs()
        assert (found, report["made"], len(report["faults"])) == (status, [], 4)
        assert all(text in each for each in report["faults"])
    assert (certs("--renew")[0], certs()[1]["faults"]) == (0, [])


def test_the_report_says_what_to_do(
    certs: Certs, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs()
    words = ["cluster", "certs", str(folder), "--cluster", str(tmp_path / "cluster.toml")]
    assert main(words) == 0
    assert "nothing was missing; --renew makes" in capsys.readouterr().out
    assert main([*words, "--host", "lb.example"]) == 1
    said = capsys.readouterr().out
    assert "alpha/node.pem does not name lb.example" in said
    assert "run it with --renew" in said
    assert "nothing was missing" not in said


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
