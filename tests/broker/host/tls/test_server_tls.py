"""Certificates and client CAs of a listener: who gets in, and what an exchange changes for whom.

Method: real sockets and certificates, on both event loops; clients are threads.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.host.watch.reloader import ReloadError
from tests.broker.host.tls.listening import LOOPS, Files, Listening, ask, serve
from tests.certificates import CLIENT, SERVER, Authority
from tests.waiting import until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.parametrize("loop", LOOPS),
]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


def fails(call: Callable[[], Any]) -> bool:
    """Whether the connection of a call is closed, or was never made."""
    try:
        call()
    except OSError:
        return True
    return False


def refused(listening: Listening, context: ssl.SSLContext, **how: Any) -> bool:
    """Whether a client cannot ask: with TLS 1.3 it learns that only when it reads."""

    def one() -> None:
        with listening.dial(context, **how) as sock:
            ask(sock)

    return fails(one)


ALERTS = ("UNKNOWN_CA", "CERTIFICATE_EXPIRED", "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE")


def refusal(listening: Listening, context: ssl.SSLContext) -> str:
    """The error of a client that is refused."""
    try:
        with listening.dial(context) as sock:
            ask(sock)
    except OSError as error:
        return str(error)
    return ""


def test_identities_of_a_client(loop: str, files: Files) -> None:
    """Of all names, in one order, also with an intermediate CA; none without a certificate."""
    root = Authority("root")
    middle = Authority("middle", root)
    files.trust(root)
    named = files.client(
        middle, "orders", hosts=["a.example", "b.example"], uris=["spiffe://x/y"], emails=["e@x.io"]
    )
    bare = files.client(root, "bare", uses=[CLIENT])

    async def main() -> None:
        async with Listening(files.config()) as listening:
            with await in_thread(lambda: listening.dial(named)) as sock:
                assert await in_thread(lambda: ask(sock)) == [
                    *("uri:spiffe://x/y", "dns:a.example", "dns:b.example", "email:e@x.io"),
                    "cn:orders",
                ]
            with await in_thread(lambda: listening.dial(bare)) as sock:
                assert await in_thread(lambda: ask(sock)) == ["cn:bare"]
            with await in_thread(lambda: listening.dial(files.client())) as sock:
                assert await in_thread(lambda: ask(sock)) == []

    serve(loop, main)


def test_bad_certificates_of_clients_are_refused(
    loop: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another CA, expired, not valid yet, for servers only. The log names client and reason,
    and the client gets an alert with the reason.
    """
    mine, other = Authority("mine"), Authority("other")
    files.trust(mine)
    bad = [
        files.client(other),
        files.client(mine, days=(-3, -1)),
        files.client(mine, days=(1, 3)),
        files.client(mine, uses=[SERVER]),
    ]

    async def main() -> None:
        async with Listening(files.config()) as listening:
            for context, alert in zip(bad, ALERTS, strict=True):
                why = await in_thread(lambda context=context: refusal(listening, context))
                assert alert in why.upper().replace(" ", "_")
            assert not listening.open

    serve(loop, main)
    (message,) = caplog.messages
    assert message.startswith(
        "the TLS handshake with a client at 127.0.0.1 failed: its certificate is refused: "
    )


def test_certificates_are_ignored_without_client_cas(loop: str, files: Files) -> None:
    context = files.client(Authority("any"))

    async def main() -> None:
        async with Listening(files.config()) as listening:
            with await in_thread(lambda: listening.dial(context)) as sock:
                assert await in_thread(lambda: ask(sock)) == []

    serve(loop, main)


def limited(files: Files, version: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    """A client of one version."""
    context = files.client()
    context.minimum_version = context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    return context


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(
    ("policy", "version", "ciphers", "served"),
    [
        ("intermediate", ssl.TLSVersion.TLSv1_3, "", True),
        ("intermediate", ssl.TLSVersion.TLSv1_2, "", True),
        ("intermediate", ssl.TLSVersion.TLSv1_2, "ECDHE+CHACHA20", True),
        ("intermediate", ssl.TLSVersion.TLSv1_2, "ECDHE+AES:!AESGCM", False),
        ("intermediate", ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", False),
        ("modern", ssl.TLSVersion.TLSv1_3, "", True),
        ("modern", ssl.TLSVersion.TLSv1_2, "", False),
    ],
)
def test_versions_and_ciphers(
    loop: str, files: Files, policy: str, version: ssl.TLSVersion, ciphers: str, served: bool
) -> None:
    context = limited(files, version, ciphers)

    async def main() -> None:
        async with Listening(files.config(policy)) as listening:
            assert await in_thread(lambda: refused(listening, context)) is not served

    serve(loop, main)


def test_exchange_under_load(loop: str, files: Files) -> None:
    """No request of a client that stays fails, and every one of a removed client does.

    Each thread asks on one connection and on a new one, over and over, while certificates and
    client CAs are exchanged many times.
    """
    stays, goes, comes = (Authority(name) for name in ("stays", "goes", "comes"))
    files.trust(stays, goes)
    staying = [files.client(stays, f"s{each}", hosts=["s"]) for each in range(3)]
    going, coming = files.client(goes, "g"), files.client(comes, "n")
    ended = asyncio.Event()
    asked = 0

    def use(listening: Listening, context: ssl.SSLContext) -> None:
        nonlocal asked
        with listening.dial(context) as kept:
            while not ended.is_set():
                assert ask(kept)[0] == "dns:s"
                with listening.dial(context) as fresh:
                    assert ask(fresh)[0] == "dns:s"
                asked += 1

    async def exchange(listening: Listening) -> None:
        old = await in_thread(lambda: listening.dial(going))
        assert await in_thread(lambda: ask(old)) == ["cn:g"]
        assert await in_thread(lambda: refused(listening, coming))
        await until(lambda: asked >= 10)
        for turn in range(5):
            files.renew(f"broker {turn}")
            files.trust(stays, comes)
            await listening.reloader.reload()
            assert await in_thread(lambda: refused(listening, going))
            assert await in_thread(lambda old=old: fails(lambda: ask(old)))
            old.close()
            assert not await in_thread(lambda: refused(listening, coming))
            files.trust(stays, goes)
            await listening.reloader.reload()
            old = await in_thread(lambda: listening.dial(going))
            assert await in_thread(lambda old=old: ask(old)) == ["cn:g"]
        old.close()
        done = asked
        await until(lambda: asked >= done + 10)

    async def main() -> None:
        async with Listening(files.config()) as listening:
            load = [
                asyncio.create_task(asyncio.to_thread(use, listening, context))
                for context in staying
            ]
            try:
                await exchange(listening)
            finally:
                ended.set()
                # Raises what a thread has met.
                await asyncio.gather(*load)
            with await in_thread(lambda: listening.dial(files.client())) as sock:
                subject = dict(pair for (pair,) in sock.getpeercert()["subject"])
                assert subject["commonName"] == "broker 4"

    serve(loop, main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
def test_no_session_outlives_its_client_ca(
    loop: str, files: Files, version: ssl.TLSVersion
) -> None:
    """A client that resumes its session shows no certificate, so nothing verifies it again."""
    goes = Authority("goes")
    files.trust(goes)
    context = files.client(goes, "g")
    context.minimum_version = context.maximum_version = version

    def session(listening: Listening, before: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with listening.dial(context, session=before) as sock:
            assert ask(sock) == ["cn:g"]
            if version is ssl.TLSVersion.TLSv1_3:
                assert not sock.session_reused
            return sock.session

    async def main() -> None:
        async with Listening(files.config()) as listening:
            first = await in_thread(lambda: session(listening, None))
            second = await in_thread(lambda: session(listening, first))
            files.trust(Authority("comes"))
            await listening.reloader.reload()
            for each in (first, second):
                assert await in_thread(lambda each=each: refused(listening, context, session=each))

    serve(loop, main)


def test_a_handshake_that_an_exchange_overtakes(loop: str, files: Files) -> None:
    """A client connects, and begins TLS after its CA was removed: it has no name and is closed."""
    goes = Authority("goes")
    files.trust(goes)
    context = files.client(goes, "g")

    async def main() -> None:
        async with Listening(files.config()) as listening:
            plain = await in_thread(listening.connect)
            await until(lambda: listening.listener.handshakes == 1)
            files.trust(Authority("comes"))
            await listening.reloader.reload()

            def ask_late() -> None:
                with listening.secure(plain, context) as sock:
                    assert ask(sock) == []
                    ask(sock)

            assert await in_thread(lambda: fails(ask_late))
            await until(lambda: not listening.open)

    serve(loop, main)


def test_files_that_cannot_be_used_change_nothing(loop: str, files: Files) -> None:
    """Each fault is named and counted, and the listener serves as before."""
    trusted = Authority("trusted")
    files.trust(trusted)
    context = files.client(trusted, "c")
    pair, clients = files.folder / "broker.pem", files.folder / "clients.pem"
    good = pair.read_bytes(), clients.read_bytes()
    files.renew("other")
    key = pair.read_bytes().partition(b"-----BEGIN CERT")[0]
    certificate = b"-----BEGIN CERT" + good[0].partition(b"-----BEGIN CERT")[2]
    lines = good[1].splitlines(keepends=True)
    damaged = b"".join([lines[0], lines[1].swapcase(), *lines[2:]])
    broken = [
        (key + certificate, good[1], "belongs to another certificate"),
        (b"", good[1], "must contain a certificate"),
        (good[0], b"", "must contain certificates in PEM format"),
        (good[0], b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----", "is damaged"),
        (good[0], damaged, "is damaged"),
    ]

    async def main() -> None:
        async with Listening(files.config()) as listening:
            for number, (first, second, why) in enumerate(broken, 1):
                pair.write_bytes(first)
                clients.write_bytes(second)
                with pytest.raises(ReloadError, match=rf"tls stays as it was: .*{why}"):
                    await listening.reloader.reload()
                assert listening.reloader.counts["tls", "failed"] == number
                assert not await in_thread(lambda: refused(listening, context))
            pair.write_bytes(good[0])
            clients.write_bytes(good[1])
            pair.chmod(0o644)
            with pytest.raises(ReloadError, match=r"mode 644\); run: chmod 600"):
                await listening.reloader.reload()
            pair.chmod(0o600)
            assert await listening.reloader.reload() == ["tls"]
            assert listening.reloader.counts["tls", "ok"] == 1

    serve(loop, main)
