"""Attempts over real sockets: receivers of every kind on loopback, which an allow-list permits."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.push.attempts import ANSWER_BYTES_MAX, DRAIN_SECONDS, Attempts
from delaylog.broker.push.outcomes import ACKED, Outcome, Verdict
from delaylog.broker.push.requests import PushedMessage, PushRequest, make_request
from delaylog.broker.rules.push_addresses import AddressRules, parse_networks
from delaylog.broker.rules.push_signatures import make_secret, make_signers, signature_headers
from delaylog.contract.calls.targets import BINARY
from tests.broker.push.receivers import OK, Receiver, Script, Slow, answer, drip, hang, raw
from tests.certificates import SERVER, Authority
from tests.waiting import until

pytestmark = pytest.mark.processes
REQUEST = PushRequest([("content-type", "text/plain")], b"hello")
LOOPBACK = parse_networks(["127.0.0.0/8", "::1"])
TIMEOUT_MS = 700
"""Of attempts that nobody answers."""
PATIENT_MS = 20_000
"""Of all others: a busy machine may need a second for an answer."""


@asynccontextmanager
async def client(port: int, **more: Any) -> AsyncGenerator[Attempts]:
    rules = AddressRules(LOOPBACK, frozenset((port,)))
    made = Attempts(rules, now_ms=lambda: time.time_ns() // 1_000_000, **more)
    try:
        yield made
    finally:
        await made.close()


async def push_to(script: Script, timeout_ms: int = PATIENT_MS) -> Outcome:
    async with Receiver(script) as receiver, client(receiver.port) as attempts:
        return await attempts.post(f"http://127.0.0.1:{receiver.port}/hook", REQUEST, timeout_ms)


ENDLESS_BODY = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65_535
)
BOMB = gzip.compress(b"\0" * 10_000_000)


@pytest.mark.parametrize(
    ("script", "verdict", "reason"),
    [
        (answer(200), Verdict.ACKED, ""),
        (answer(200, body=b"\xff\x00 garbage"), Verdict.ACKED, ""),
        (
            answer(301, "location: http://127.0.0.1:1/"),
            Verdict.FAILED,
            "redirects are not followed",
        ),
        (answer(400, body=b"bad"), Verdict.FAILED, "answer 400 Bad Request: bad"),
        (answer(410), Verdict.GONE, "answer 410 Gone"),
        (answer(422, "Webhook-Delivery: abort-message"), Verdict.REFUSED, "answer 422"),
        (answer(429, "retry-after: 7"), Verdict.THROTTLED, "answer 429"),
        (
            answer(500, body=b"x" * 1_000_000),
            Verdict.FAILED,
            "answer 500 Internal Server Error: xxx",
        ),
        (answer(200, "set-cookie: a=b", "content-encoding: gzip", body=BOMB), Verdict.ACKED, ""),
        (answer(200, "content-encoding: gzip", body=b"no gzip"), Verdict.ACKED, ""),
        (hang, Verdict.FAILED, f"no answer within {TIMEOUT_MS} ms"),
        (drip(b"HTTP/1.1 200 OK\r\nx", 0.05), Verdict.FAILED, f"no answer within {TIMEOUT_MS} ms"),
        (raw(b""), Verdict.FAILED, "no answer: Server disconnected"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-le"), Verdict.FAILED, "no answer"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort"), Verdict.ACKED, ""),
        (raw(b"HTTP/1.1 500 X\r\ncontent-length: 99\r\n\r\nshort"), Verdict.FAILED, "answer 500"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"), Verdict.FAILED, "no answer"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx"), None, ""),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more"), None, ""),
        (raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), None, ""),
        (raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000 + b"\r\n"), Verdict.FAILED, "no answer"),
        (
            raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"),
            Verdict.FAILED,
            "no answer",
        ),
        (raw(b"HTTP/1.1 abc\r\n\r\n"), Verdict.FAILED, "no answer"),
        (raw(b"SSH-2.0-OpenSSH_9.9\r\n"), Verdict.FAILED, "no answer"),
        (raw(b"\x16\x03\x01\x00\x05hello"), Verdict.FAILED, "no answer"),
        (raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 8 + OK), Verdict.ACKED, ""),
        (raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 9 + OK), Verdict.FAILED, "too many interim"),
        (
            raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
            None,
            "",
        ),
    ],
)
async def test_receivers(script: Script, verdict: Verdict | None, reason: str) -> None:
    times_out = f"{TIMEOUT_MS} ms" in reason
    made = await push_to(script, TIMEOUT_MS if times_out else PATIENT_MS)
    # None: aiohttp may read it in either way; it is no error of ours, and takes no time.
    assert made.verdict is verdict or (verdict is None and made.verdict in (1, 2))
    assert reason in made.reason
    assert len(made.reason.encode()) <= 1_024
    assert made.reason.isprintable()


@pytest.mark.parametrize(
    "script", [drip(b"HTTP/1.1 200 OK\r\n\r\nx", 0.001), raw(ENDLESS_BODY, close=False)]
)
async def test_a_body_that_never_ends_holds_an_attempt_for_a_second_at_most(script: Script) -> None:
    async with Receiver(script) as receiver, client(receiver.port) as attempts:
        began = time.monotonic()
        made = await attempts.post(f"http://127.0.0.1:{receiver.port}/", REQUEST, 30_000)
        assert made == ACKED
        assert time.monotonic() - began < DRAIN_SECONDS + 2


async def test_attempts_do_not_time_out_at_whole_seconds_together() -> None:
    """aiohttp rounds timeouts of 5 s and more up to a whole second of the loop's clock."""
    loop = asyncio.get_running_loop()
    async with Receiver(hang) as receiver, client(receiver.port) as attempts:

        async def one(after_s: float) -> float:
            await asyncio.sleep(after_s)
            began_s = loop.time()
            await attempts.post(f"http://127.0.0.1:{receiver.port}/", REQUEST, 5_000)
            return loop.time() - began_s

        # A busy machine may be late for one of them, but not again and again.
        for _ in range(3):
            took_s = await asyncio.gather(one(0), one(0.5))
            # Rounded, one of them would take half a second more than the other.
            if abs(took_s[0] - took_s[1]) < 0.3:
                return
    raise AssertionError(took_s)


async def test_headers_that_never_end_end_the_attempt() -> None:
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-%d: y\r\n" % sent * 1_000)
            sent += 1_000
            await writer.drain()

    made = await push_to(endless)
    assert (made.verdict, made.reason[:9]) == (Verdict.FAILED, "no answer")


async def test_interim_answers_without_end_stop_nothing_else() -> None:
    """The loop goes on: a flood that it had to read would keep this test from ending."""

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 E\r\n\r\n" * 1_000)
            await writer.drain()

    # An attempt that read on would end by its timeout, and say so, if the loop ever got to it.
    made = await push_to(flood, 60_000)
    assert "too many interim answers" in made.reason


async def test_a_body_is_read_up_to_its_bound() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            sent += 65_536
            await writer.drain()

    assert await push_to(flood) == ACKED
    # What the buffers of two kernels' sockets hold comes on top.
    assert sent < 256 * ANSWER_BYTES_MAX


async def test_connections_beyond_the_limit_are_not_kept() -> None:
    """A burst at many targets must not leave more idle connections than there are descriptors."""
    async with Receiver(Slow(0.2)) as receiver, client(receiver.port, idle_max=3) as attempts:
        url = f"http://127.0.0.1:{receiver.port}/hook"
        for accepted in (10, 10 + 10 - 3):
            posts = [attempts.post(url, REQUEST, 10_000) for _ in range(10)]
            assert await asyncio.gather(*posts) == [ACKED] * 10
            await until(lambda: len(receiver._tasks) == 3)
            assert receiver.accepted == accepted


async def test_a_connection_is_used_again_and_no_cookie_comes_back() -> None:
    script = answer(200, "set-cookie: session=1; path=/", body=b"ok")
    async with Receiver(script) as receiver, client(receiver.port) as attempts:
        for _ in range(3):
            assert (
                await attempts.post(f"http://127.0.0.1:{receiver.port}/a?b", REQUEST, 5_000)
                == ACKED
            )
    assert receiver.accepted == 1
    assert [line for line, _, _ in receiver.requests] == ["POST /a?b HTTP/1.1"] * 3
    for _, headers, body in receiver.requests:
        assert body == b"hello"
        assert headers.keys() == {"host", "user-agent", "content-type", "content-length"}


async def test_nothing_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither a proxy nor a password of .netrc."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with Receiver(answer(200)) as proxy, Receiver(answer(200)) as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with client(receiver.port) as attempts:
            url = f"http://127.0.0.1:{receiver.port}/"
            assert await attempts.post(url, REQUEST, 5_000) == ACKED
    assert (proxy.accepted, receiver.accepted) == (0, 1)
    assert "authorization" not in receiver.requests[0][1]


async def test_a_signed_push_verifies_at_the_receiver() -> None:
    from standardwebhooks import Webhook

    secret = make_secret(b"s" * 32)
    said = PushedMessage(
        "~01", "ü\r\nx", 1_790_000_000_000, 1, "", [], {"a\r\nb": "c\r\nd"}, b'{"a":1}'
    )
    made = make_request(said, "/topics/t", BINARY)
    signed = signature_headers(make_signers([secret]), said.id, int(time.time()), made.body)
    request = PushRequest(made.headers + signed, made.body)
    async with Receiver(answer(200)) as receiver, client(receiver.port) as attempts:
        assert await attempts.post(f"http://127.0.0.1:{receiver.port}/", request, 5_000) == ACKED
    _, headers, body = receiver.requests[0]
    assert Webhook(secret).verify(body.decode(), headers) == {"a": 1}
    assert headers["ce-subject"] == "%C3%BC%0D%0Ax"
    assert headers["delaylog-header-a%0d%0ab"] == "c%0D%0Ad"


async def test_own_listeners_are_refused_even_where_the_list_permits_them() -> None:
    async with Receiver(answer(200)) as receiver:
        own = frozenset((receiver.port,))
        async with client(receiver.port, own_ports=own) as attempts:
            made = await attempts.post(f"http://127.0.0.1:{receiver.port}/", REQUEST, 5_000)
    assert made.verdict is Verdict.FAILED
    assert made.reason.endswith("is this broker itself")
    assert receiver.accepted == 0


def contexts(authority: Authority, **how: Any) -> tuple[ssl.SSLContext, bytes]:
    trusting = ssl.create_default_context(cadata=authority.pem.decode())
    return trusting, authority.issue("receiver", uses=[SERVER], **how)


@pytest.mark.parametrize(
    ("trusted", "how", "reason"),
    [
        (True, {"hosts": ["127.0.0.1"]}, ""),
        (True, {"hosts": ["example.com"]}, "certificate is not valid"),
        (True, {"hosts": ["127.0.0.1"], "days": (-9, -1)}, "certificate is not valid"),
        (False, {"hosts": ["127.0.0.1"]}, "certificate is not valid"),
    ],
)
async def test_certificates(trusted: bool, how: Any, reason: str, tmp_path: Path) -> None:
    trusting, certificate = contexts(Authority("root"), **how)
    if not trusted:
        trusting = ssl.create_default_context()
    (tmp_path / "pem").write_bytes(certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "pem")
    async with (
        Receiver(answer(200), tls=serving) as receiver,
        client(receiver.port, tls=trusting) as attempts,
    ):
        made = await attempts.post(f"https://127.0.0.1:{receiver.port}/", REQUEST, 5_000)
    assert made.verdict is (Verdict.FAILED if reason else Verdict.ACKED)
    assert reason in made.reason
    assert len(receiver.requests) == (0 if reason else 1)


async def test_tls_to_a_receiver_without_tls() -> None:
    async with Receiver(answer(200)) as receiver, client(receiver.port) as attempts:
        made = await attempts.post(f"https://127.0.0.1:{receiver.port}/", REQUEST, PATIENT_MS)
    assert made.verdict is Verdict.FAILED


async def test_nobody_listens() -> None:
    async with Receiver(answer(200)) as receiver:
        port = receiver.port
    async with client(port) as attempts:
        made = await attempts.post(f"http://127.0.0.1:{port}/", REQUEST, PATIENT_MS)
    assert made.reason == "no answer: Connection refused (ECONNREFUSED)"


async def test_closing_ends_attempts_under_way() -> None:
    async with Receiver(hang) as receiver, client(receiver.port) as attempts:
        url = f"http://127.0.0.1:{receiver.port}/"
        running = asyncio.create_task(attempts.post(url, REQUEST, 60_000))
        await receiver.arrived.wait()
        await attempts.close()
        assert (await running).verdict is Verdict.FAILED
