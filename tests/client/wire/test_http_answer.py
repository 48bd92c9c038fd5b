"""HTTP answers from bytes: each is fed whole, byte by byte, and cut in two at every place.

However it is cut, the same status, headers and body come out; an answer that ends early is never
taken for a whole one, and what is no HTTP is refused.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.wire import http_answer
from delaylog.client.wire.http_answer import HEAD_BYTES_MAX, AnswerReader, MalformedAnswer

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: x\r\n\r\nhello"
CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
)
UNTIL_END = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: l\r\n\r\n" + LENGTH
NO_BODY = b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"
EMPTY = b"HTTP/1.1 503 \r\ncontent-length: 0\r\nRetry-After:  2 \r\n\r\n"
ALL = {
    "length": (LENGTH, 200, b"hello"),
    "chunks": (CHUNKS, 200, b"hello"),
    "until the end": (UNTIL_END, 200, b"hello"),
    "interim": (INTERIM, 200, b"hello"),
    "no body": (NO_BODY, 204, b""),
    "empty": (EMPTY, 503, b""),
}


def read(pieces: list[bytes]) -> AnswerReader:
    """An answer of these pieces, after which the connection ends."""
    reader = AnswerReader()
    whole = False
    for piece in pieces:
        assert not whole
        whole = reader.feed(piece)
    if not whole:
        reader.end()
    return reader


@pytest.mark.parametrize("name", ALL)
def test_an_answer_cut_anywhere_reads_the_same(name: str) -> None:
    wire, status, body = ALL[name]
    cuts = [[wire], [wire[at : at + 1] for at in range(len(wire))]]
    cuts += [[wire[:at], wire[at:]] for at in range(1, len(wire))]
    for pieces in cuts:
        reader = read(pieces)
        assert (reader.status, reader.body) == (status, body), pieces
        assert reader.reusable == (name != "until the end")


@pytest.mark.parametrize("name", [name for name in ALL if name != "until the end"])
def test_half_an_answer_is_no_answer(name: str) -> None:
    wire = ALL[name][0]
    for at in range(len(wire)):
        reader = AnswerReader()
        assert not reader.feed(wire[:at])
        with pytest.raises(MalformedAnswer, match="broke off"):
            reader.end()


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_chunks_of_any_content(parts: list[bytes], data: st.DataObject) -> None:
    """Bodies that look like chunk borders too."""
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire += b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    places = sorted(data.draw(st.lists(st.integers(1, len(wire) - 1), max_size=6)))
    pieces = [wire[a:b] for a, b in zip([0, *places], [*places, len(wire)], strict=True) if a < b]
    assert read(pieces).body == b"".join(parts)


@given(st.binary(max_size=30))
def test_chunks_made_of_line_ends(noise: bytes) -> None:
    body = noise + b"\r\n0\r\n\r\n"
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    wire %= (len(body), body)
    for at in range(1, len(wire)):
        assert read([wire[:at], wire[at:]]).body == body


def test_headers_are_found_in_any_spelling() -> None:
    reader = read([EMPTY])
    assert (reader.header(b"retry-after"), reader.header(b"location")) == ("2", None)


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive", True),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive", True),
    ],
)
def test_whether_another_request_may_follow(head: bytes, reusable: bool) -> None:
    assert read([head + b"\r\nContent-Length: 0\r\n\r\n"]).reusable is reusable


@pytest.mark.parametrize("wire", [LENGTH + b"x", CHUNKS + b"HTTP/1.1 200", NO_BODY + b"x"])
def test_more_than_was_asked_for_ends_the_connection(wire: bytes) -> None:
    reader = read([wire])
    assert not reader.reusable
    assert reader.body in (b"hello", b"")


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : v\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (HEAD_BYTES_MAX + 100),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000,
    ],
)
def test_what_is_no_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        AnswerReader().feed(wire)


@given(st.binary(max_size=200))
def test_noise_is_refused_or_unfinished(noise: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read([noise])


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", b"x" * 1_000),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"x" * 1_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_that_does_not_end_is_refused(
    head: bytes, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_answer, "ANSWER_BYTES_MAX", 10_000)
    with pytest.raises(MalformedAnswer, match="longer than"):
        read([*[head][: len(head)], *[part] * 3_000])
