"""What is wrong with certificates, and what a start, a reload and the log make of it.

Method: certificates with one fault each; contexts as a broker makes them; the clock is an argument.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.tls.certificate_watch import CertificateWatch
from delaylog.broker.host.tls.certificates import Certificate, Hosts, covers, validity
from delaylog.broker.host.tls.contexts import ClientTls, ServerTls
from delaylog.broker.host.watch.reloader import Reloader, ReloadError
from tests.certificates import CLIENT, HOSTS, Authority, pem_of, self_signed, write_private
from tests.waiting import until

DAY_S = 86_400
CA = Authority("ca", days=(-400, 4_000))


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    return put(tmp_path / "broker.pem", hosts=["a.example", "10.0.0.1"])


def put(path: Path, issuer: Authority = CA, **how: Any) -> Path:
    """Write a certificate and its key."""
    return write_private(path, issuer.issue("broker", **how))


def reload(tls: ServerTls) -> None:
    """Read the files again and put them into use. Raises ConfigError."""
    asyncio.run(tls.read()())  # type: ignore[arg-type]


# ------------------------------------------------------------------ facts


@pytest.mark.parametrize(
    ("hours", "spans"),
    [
        (4, ["an hour"]),
        (10, ["3 hours"]),
        (30 * 24, ["8 days", "7 days", "a day"]),
        (365 * 24, ["30 days", "7 days", "a day"]),
    ],
)
def test_warnings_before_the_end(hours: int, spans: list[str]) -> None:
    """At 30, 7 and 1 days, or at a quarter of a short lifetime; then it has ended."""
    life_s = hours * 3_600
    made = Certificate("CN=x", "CN=ca", 0, life_s, ())
    said: list[str] = []
    for now_s in range(0, life_s + life_s // 100, life_s // 1_000):
        for fault in validity("tls-cert", [made], now_s):
            assert life_s - now_s <= life_s / 4
            if fault.text not in said:
                said.append(fault.text)
    assert [each.partition("less than ")[2] for each in said[:-1]] == spans
    assert "CN=x has expired: it ended on 197" in said[-1]


@pytest.mark.parametrize(
    ("host", "named", "covered"),
    [
        ("a.example", ["*.example"], True),
        ("b.a.example", ["*.example"], False),
        ("example", ["*.example"], False),
        ("A.example.", ["a.EXAMPLE"], True),
        ("::1", ["0:0:0:0:0:0:0:1"], True),
        ("2001:DB8::1", ["2001:db8::1"], True),
        ("10.0.0.1", ["10.0.0.2"], False),
    ],
)
def test_names(tmp_path: Path, host: str, named: list[str], covered: bool) -> None:
    """Wildcards, case, a dot at the end, forms of an IPv6 address; a common name counts nothing."""
    tls = ServerTls(TlsConfig(str(put(tmp_path / "pair.pem", hosts=named))))
    tls.hosts = Hosts(told=(host,))
    assert [each.check for each in tls.faults()] == ([] if covered else ["names"])
    assert not covers(Certificate("CN=a.example", "", 0, 1, ()), "a.example")


@pytest.mark.parametrize(
    "how",
    [
        {"key": ec.generate_private_key(ec.SECP384R1())},
        {"key": rsa.generate_private_key(65_537, 2_048)},
        {"signs": True},
    ],
)
def test_kinds_of_keys(tmp_path: Path, how: dict[str, Any]) -> None:
    assert not ServerTls(TlsConfig(str(put(tmp_path / "pair.pem", hosts=["a"], **how)))).faults()


def test_proxies_may_have_the_other_names(pair: Path) -> None:
    """One name of the settings is enough; where clients are sent by the cluster, each counts."""
    tls = ServerTls(TlsConfig(str(pair)))
    tls.hosts = Hosts(others=("public.example", "a.example"))
    assert not tls.faults()
    tls.hosts = Hosts(others=("public.example", "b.example"))
    (fault,) = tls.faults()
    assert fault.text.startswith("tls-cert names none of public.example, b.example; it names a.ex")
    tls.hosts = Hosts(told=("10.0.0.1", "10.0.0.9"), others=("public.example",))
    assert [each.about for each in tls.faults()] == ["10.0.0.9"]


ROOT = Authority("root")
MIDDLE = Authority("middle", ROOT)


def blocks(pair: bytes) -> list[bytes]:
    """The key and the certificates of a file."""
    return [b"-----BEGIN " + part for part in pair.split(b"-----BEGIN ")[1:]]


SOUND = MIDDLE.issue("broker", hosts=HOSTS)
ALONE = b"".join(blocks(SOUND)[:2])


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (SOUND, []),
        (ALONE, ["tls-cert: CN=broker cannot be verified with tls-ca: unable to get"]),
        (ALONE + Authority("middle", Authority("root")).pem, ["cannot be verified with tls-ca: "]),
        (self_signed(), ["tls-cert: CN=broker cannot be verified with tls-ca: self"]),
    ],
    ids=["sound", "no intermediate", "another intermediate", "self-signed"],
)
def test_issuers(tmp_path: Path, pair: bytes, says: list[str]) -> None:
    (tmp_path / "roots.pem").write_bytes(ROOT.pem)
    tls = ServerTls(TlsConfig(str(write_private(tmp_path / "pair.pem", pair))))
    tls.roots = ClientTls(str(tmp_path / "roots.pem")).roots
    faults = tls.faults()
    assert [each.check for each in faults] == ["chain"] * len(says)
    assert all(text in fault.text for text, fault in zip(says, faults, strict=True))


# ------------------------------------------------------------------ start and reload


def encrypted(path: Path) -> None:
    key, _, rest = CA.issue("broker").partition(b"-----BEGIN CERTIFICATE-----")
    loaded: Any = serialization.load_pem_private_key(key, None)
    how = serialization.BestAvailableEncryption(b"x")
    form = serialization.PrivateFormat.PKCS8
    locked = loaded.private_bytes(serialization.Encoding.PEM, form, how)
    write_private(path, locked + b"-----BEGIN CERTIFICATE-----" + rest)


def half_written(path: Path) -> None:
    write_private(path, CA.issue("broker")[:-50])


def no_key(path: Path) -> None:
    """Also where others may read the file: a certificate needs no mode 0600."""
    write_private(path, b"".join(blocks(SOUND)[1:])).chmod(0o644)


def issuer_first(path: Path) -> None:
    key, leaf, issuer = blocks(SOUND)
    write_private(path, key + issuer + leaf)


def signed_with_sha1(path: Path) -> None:
    """By openssl, since `cryptography` signs with SHA-1 no more."""
    folder = path.parent
    write_private(folder / "ca.key", pem_of(CA.key))
    (folder / "ca.pem").write_bytes(CA.pem)
    (folder / "extensions").write_text("subjectAltName=DNS:localhost")
    new = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=broker"]
    sign = ["x509", "-req", "-sha1", "-days", "90", "-in", "csr", "-CA", "ca.pem"]
    for words in (
        [*new, "-keyout", "key", "-out", "csr"],
        [*sign, "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-out", "leaf"],
    ):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    parts = [(folder / name).read_bytes() for name in ("key", "leaf")]
    write_private(path, b"".join(parts) + CA.pem)


def ended_intermediate(path: Path) -> None:
    put(path, Authority("middle", CA, days=(-9, -1)), hosts=["a.example"])


def fifo(path: Path) -> None:
    """Opening it must not wait for a writer: no file would be read again."""
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (fifo, "is not a regular file"),
        (lambda at: os.truncate(at, 1 << 40), "is too large: it has more than 4194304 bytes"),
        (lambda at: put(at, days=(-9, -0.01)), "tls-cert: CN=broker has expired: it ended on 20"),
        (lambda at: put(at, days=(0.01, 9)), r"tls-cert: CN=broker is not valid before .* UTC; it"),
        (ended_intermediate, "tls-cert: CN=middle has expired"),
        (encrypted, "the key is encrypted; write it without a passphrase"),
        (no_key, "contains no private key: give its file as tls-key"),
        (issuer_first, "belongs to another certificate"),
        (lambda at: put(at, key=rsa.generate_private_key(65_537, 1_024)), "is too weak"),
        (lambda at: put(at, key=ec.generate_private_key(ec.SECP224R1())), "no client can"),
        (signed_with_sha1, "is too weak"),
        (half_written, r"tls-cert .*broker.pem cannot be used: .* \(it ends too early\)"),
        (lambda at: write_private(at, b""), r"tls-cert .* \(it is empty\)"),
        (lambda at: at.unlink(), "cannot read tls-cert .*: No such file"),
    ],
)
def test_files_that_are_refused(pair: Path, change: Callable[[Path], Any], says: str) -> None:
    """At a start, and at a reload, where what was read before stays."""
    running = ServerTls(TlsConfig(str(pair)))
    context = running.context
    change(pair)
    with pytest.raises(ConfigError, match=says):
        ServerTls(TlsConfig(str(pair)))
    with pytest.raises(ConfigError, match=says):
        running.read()
    assert running.context is context


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"hosts": ["b.example"]}, "tls-cert names b.example, and the certificate in use names a."),
        ({"hosts": []}, "has no subjectAltName"),
        ({"hosts": ["10.0.0.1"]}, "tls-cert does not name a.example; it names 10.0.0.1"),
        ({"hosts": ["a.example", "10.0.0.1"], "uses": [CLIENT]}, "clients refuse CN=broker: unsui"),
    ],
)
def test_a_reload_never_makes_it_worse(pair: Path, how: dict[str, Any], says: str) -> None:
    """What a start only warns of is refused where the certificate in use is sound."""
    running = ServerTls(TlsConfig(str(pair)))
    running.hosts = Hosts(told=("a.example",))
    put(pair, **how)
    with pytest.raises(ConfigError, match=says):
        running.read()
    again = ServerTls(TlsConfig(str(pair)))
    again.hosts = running.hosts
    assert again.faults()
    put(pair, hosts=["*.example"])
    reload(again)
    assert not again.faults()


def test_a_broker_behind_a_proxy_may_have_any_names(pair: Path) -> None:
    """Its certificate names no host of the settings: new ones with a name of the old are taken."""
    running = ServerTls(TlsConfig(str(pair)))
    running.hosts = Hosts(others=("public.example",))
    put(pair, hosts=["10.0.0.1", "c.example"])
    reload(running)
    put(pair, hosts=["elsewhere.example"])
    with pytest.raises(ConfigError, match="it is that of another host"):
        running.read()
    put(pair, hosts=["public.example"])
    reload(running)


def test_authorities(tmp_path: Path, pair: Path) -> None:
    """One that has ended beside a valid one is a warning; alone it is refused. The metric has the
    one that ends first of those that are left.
    """
    old, new = Authority("old", days=(-9, -1)), Authority("new", days=(-1, 90))
    path = tmp_path / "clients.pem"
    path.write_bytes(old.pem)
    for make in (
        lambda: ClientTls(str(path)),
        lambda: ServerTls(TlsConfig(str(pair), None, str(path))),
    ):
        with pytest.raises(ConfigError, match=r"tls-(client-)?ca: CN=old has expired"):
            make()
    path.write_bytes(old.pem + new.pem)
    (fault,) = ClientTls(str(path)).faults()
    assert (fault.severity, fault.text[:30]) == ("warning", "tls-ca: CN=old has expired: it")
    tls = ServerTls(TlsConfig(str(pair), None, str(path)))
    assert [each.severity for each in tls.faults()] == ["warning"]
    ends = tls.ends()
    assert ends["client_ca"] == pytest.approx(time.time() + 90 * DAY_S, abs=60)
    assert ends["server"] == pytest.approx(time.time() + 30 * DAY_S, abs=60)


@pytest.mark.parametrize(
    ("content", "severity", "says"),
    [
        (blocks(SOUND)[1], "error", "tls-client-ca holds no CA"),
        (ROOT.pem + blocks(SOUND)[1], "warning", "tls-client-ca holds certificates that are no CA"),
    ],
)
def test_files_of_authorities_that_hold_others(
    tmp_path: Path, pair: Path, content: bytes, severity: str, says: str
) -> None:
    (tmp_path / "clients.pem").write_bytes(content)
    (fault,) = ServerTls(TlsConfig(str(pair), None, str(tmp_path / "clients.pem"))).faults()
    assert (fault.severity, fault.text.startswith(says)) == (severity, True)


# ------------------------------------------------------------------ watch


async def test_the_log_warns_once_at_each_bound(
    pair: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after the end, and again for a new certificate."""
    now = [time.time()]
    put(pair, hosts=["a.example"], days=(-300, 40.5))
    tls = ServerTls(TlsConfig(str(pair)), lambda: now[0])
    watch = CertificateWatch(REAL)
    watch.add(tls)
    begin, said = now[0], []
    for day in range(45):
        now[0] = begin + day * DAY_S
        for _ in range(2):
            await watch.look()
        said += [(day, each.levelname) for each in caplog.records]
        caplog.clear()
    assert said == [(11, "WARNING"), (34, "WARNING"), (40, "WARNING"), (41, "ERROR")]
    put(pair, hosts=["a.example"], days=(-300, 80))
    await tls.read()()
    now[0] = begin + 75 * DAY_S
    await watch.look()
    assert "in less than 7 days" in caplog.text


async def test_the_watch_of_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A link that is turned to another folder, as Kubernetes does, is a change; and a certificate
    that becomes valid after it was refused is taken without another change.
    """
    caplog.set_level(logging.INFO)
    for name, how in (("one", {}), ("two", {"days": (3 / DAY_S, 5)})):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "broker.pem", hosts=["a.example"], **how)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "broker.pem").symlink_to("..data/broker.pem")
    tls = ServerTls(TlsConfig(str(tmp_path / "broker.pem")))
    first = tls.ends()
    reloader = Reloader(REAL)
    reloader.register("tls", tls.files, tls.read)
    reloader.retry_looks = 2
    reloader.start()
    try:
        (tmp_path / "..new").symlink_to("two")
        (tmp_path / "..new").rename(tmp_path / "..data")
        await until(lambda: tls.ends() != first)
    finally:
        reloader.stop()
    assert reloader.counts == {("tls", "ok"): 1, ("tls", "failed"): 1}
    said = [each.getMessage() for each in caplog.records if each.name == "delaylog.reload"]
    assert "is not valid before" in said[0]
    assert said[1:] == ["tls was read again"]
    shutil.rmtree(tmp_path / "two")
    with pytest.raises(ReloadError, match="cannot read tls-cert"):
        await reloader.reload()
