"""`delaylog doctor tls`: sound files pass, and each fault is found by the check for it.

Method: the command on files with one fault each; certificates are made for it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from delaylog.broker.cli.main import main
from tests.certificates import CLIENT, HOSTS, SERVER, Authority, pem_of, self_signed, write_private

ROOT = Authority("root")
MIDDLE = Authority("middle", ROOT)


class Files:
    """The files that the command is asked about."""

    def __init__(self, folder: Path) -> None:
        self.pair = MIDDLE.issue("broker", hosts=HOSTS, uses=[SERVER])
        self.roots = ROOT.pem
        self.clients: bytes | None = ROOT.pem
        self.mode = 0o600
        self.hosts: Sequence[str] = ("localhost",)
        self.folder = folder

    def words(self) -> list[str]:
        """Write them; returns the command's words."""
        pair = write_private(self.folder / "broker.pem", self.pair)
        pair.chmod(self.mode)
        (self.folder / "roots.pem").write_bytes(self.roots)
        found = ["doctor", "tls", "--tls-cert", str(pair)]
        found += ["--tls-ca", str(self.folder / "roots.pem")]
        if self.clients is not None:
            (self.folder / "clients.pem").write_bytes(self.clients)
            found += ["--tls-client-ca", str(self.folder / "clients.pem")]
        return found + [word for host in self.hosts for word in ("--host", host)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def blocks(pair: bytes) -> list[bytes]:
    """The key and the certificates of a file."""
    end = b"-----\n"
    parts = pair.split(b"-----BEGIN ")[1:]
    assert all(part.endswith(end) for part in parts)
    return [b"-----BEGIN " + part for part in parts]


def report_of(files: Files, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    status = main([*files.words(), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is (status == 0)
    return status, report["checks"]


def test_sound_files(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """With intermediate and client CAs; without client CAs there is one check less."""
    status, checks = report_of(files, capsys)
    assert (status, {each["mark"] for each in checks}) == (0, {"ok"})
    named = ["files", "validity", "use", "chain", "names", "authorities"]
    assert [each["check"] for each in checks] == named
    files.clients = None
    assert [each["check"] for each in report_of(files, capsys)[1]] == named[:-1]
    assert main(files.words()) == 0
    assert "OK    chain          the chain is complete\n" in capsys.readouterr().out


def issued(**how: Any) -> Callable[[Files], None]:
    """Another certificate of the same CA."""

    def change(files: Files) -> None:
        files.pair = MIDDLE.issue("broker", **{"hosts": HOSTS, **how})

    return change


def open_to_the_group(files: Files) -> None:
    files.mode = 0o660


def another_key(files: Files) -> None:
    _, *certificates = blocks(files.pair)
    files.pair = b"".join([pem_of(ec.generate_private_key(ec.SECP256R1())), *certificates])


def no_intermediate(files: Files) -> None:
    files.pair = b"".join(blocks(files.pair)[:2])


def no_key(files: Files) -> None:
    """Also where others may read the file: a certificate needs no mode 0600."""
    files.pair = b"".join(blocks(files.pair)[1:])
    files.mode = 0o644


def issuer_first(files: Files) -> None:
    key, leaf, issuer = blocks(files.pair)[:3]
    files.pair = key + issuer + leaf


def wrong_intermediate(files: Files) -> None:
    other = Authority("middle", Authority("root"))
    files.pair = b"".join(blocks(files.pair)[:2]) + other.pem


def expired_intermediate(files: Files) -> None:
    old = Authority("old", ROOT, days=(-30, -1))
    files.pair = old.issue("broker", hosts=HOSTS)


def signs_itself(files: Files) -> None:
    files.pair = self_signed()


def signed_with_sha1(files: Files) -> None:
    """By openssl, since `cryptography` signs with SHA-1 no more."""
    folder = files.folder
    write_private(folder / "ca.key", pem_of(MIDDLE.key))
    (folder / "ca.pem").write_bytes(MIDDLE.pem)
    (folder / "extensions").write_text("subjectAltName=DNS:localhost")
    new = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=broker"]
    sign = ["x509", "-req", "-sha1", "-days", "90", "-in", "csr", "-CA", "ca.pem"]
    for words in (
        [*new, "-keyout", "key", "-out", "csr"],
        [*sign, "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-out", "leaf"],
    ):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    files.pair = b"".join((folder / name).read_bytes() for name in ("key", "leaf")) + MIDDLE.pem


def another_host(files: Files) -> None:
    files.hosts = ("broker.example", "10.0.0.1")


def no_client_ca(files: Files) -> None:
    files.clients = blocks(MIDDLE.issue("client"))[1]


def one_is_no_ca(files: Files) -> None:
    files.clients = ROOT.pem + blocks(MIDDLE.issue("client"))[1]


def old_client_ca(files: Files) -> None:
    files.clients = Authority("clients", days=(-30, -1)).pem


@pytest.mark.parametrize(
    ("change", "check", "mark", "says"),
    [
        (open_to_the_group, "files", "fail", "(mode 660); run: chmod 600"),
        (no_key, "files", "fail", "contains no private key: give its file as tls-key"),
        (another_key, "files", "fail", "belongs to another certificate"),
        (issued(days=(-9, -1)), "validity", "fail", "CN=broker has expired: it ended on 20"),
        (issued(days=(1, 9)), "validity", "fail", "CN=broker is not valid before 20"),
        (issued(days=(-300, 29.9)), "validity", "warn", "CN=broker expires on 20"),
        (issued(days=(-300, 6.9)), "validity", "warn", "UTC, in less than 7 days"),
        (issued(days=(-0.8, 0.2)), "validity", "warn", "UTC, in less than 6 hours"),
        (expired_intermediate, "validity", "fail", "CN=old has expired: it ended on 20"),
        (no_intermediate, "chain", "fail", "cannot be verified with tls-ca: unable to get"),
        (issuer_first, "files", "fail", "belongs to another certificate"),
        (wrong_intermediate, "chain", "fail", "cannot be verified with tls-ca: "),
        (signs_itself, "chain", "fail", "CN=broker cannot be verified with tls-ca: self"),
        (issued(hosts=()), "names", "fail", "has no subjectAltName"),
        (another_host, "names", "fail", "does not name broker.example; it names localhost, 127."),
        (another_host, "names", "fail", "does not name 10.0.0.1; it names localhost, 127.0.0.1"),
        (issued(key=rsa.generate_private_key(65_537, 1_024)), "files", "fail", "is too weak"),
        (issued(key=ec.generate_private_key(ec.SECP224R1())), "files", "fail", "no client can"),
        (signed_with_sha1, "files", "fail", "is too weak"),
        (issued(uses=[CLIENT]), "use", "fail", "clients refuse CN=broker: unsuitable certificate"),
        (no_client_ca, "authorities", "fail", "tls-client-ca holds no CA"),
        (one_is_no_ca, "authorities", "warn", "tls-client-ca holds certificates that are no CA"),
        (old_client_ca, "authorities", "fail", "CN=clients has expired"),
    ],
)
def test_faults(
    files: Files,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Files], None],
    check: str,
    mark: str,
    says: str,
) -> None:
    change(files)
    status, checks = report_of(files, capsys)
    found = [each for each in checks if each["check"] == check and says in each["text"]]
    assert [each["mark"] for each in found] == [mark], checks
    assert found[0]["advice"]
    assert status == any(each["mark"] == "fail" for each in checks)


@pytest.mark.parametrize(
    ("change", "host"),
    [
        (issued(days=(-1, 3)), "localhost"),
        (issued(hosts=["*.example"]), "broker.example"),
        (issued(hosts=["BROKER.example"]), "Broker.Example."),
        (issued(hosts=["::1"]), "0:0::1"),
        (issued(signs=True), "127.0.0.1"),
    ],
)
def test_what_is_no_fault(
    files: Files, capsys: pytest.CaptureFixture[str], change: Callable[[Files], None], host: str
) -> None:
    """A short lifetime of which most is left; wildcards; case; forms of an address."""
    change(files)
    files.hosts = (host,)
    status, checks = report_of(files, capsys)
    assert (status, {each["mark"] for each in checks}) == (0, {"ok"}), checks


def test_files_that_are_no_certificates(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing more can be said of them."""
    files.pair = b"no PEM"
    status, checks = report_of(files, capsys)
    assert (status, [each["check"] for each in checks]) == (1, ["files"])
    assert "must contain a certificate" in checks[0]["text"]


def test_the_configuration_names_files_and_hosts(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = write_private(tmp_path / "pair.pem", files.pair)
    config = tmp_path / "delaylog.toml"
    config.write_text(
        f'http = "10.0.0.9:8711"\nhttp_host = "a.example"\ntls_cert = "{pair}"\nresp = ""\n'
    )
    assert main(["doctor", "tls", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "does not name a.example" in said
    assert "does not name 10.0.0.9" in said


def test_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "tls"]) == 2
    assert "there is no TLS to check: give --tls-cert FILE" in capsys.readouterr().err
