"""Hand-written sequences with the replies that redis-server gave, as text that people can read.

    ## A score has 17 significant digits

    ZADD z 0.1 a
      :1
    2> BLPOP l 0
    RPUSH l x
      :1
      2> *["l", "x"]

Each section begins on an empty server. A command is written as for redis-cli, `2>` says that the
second client sends it; below it stand its reply and then what the others received meanwhile.
`!sleep 20` waits so many milliseconds; a client that waits for an
answer gets it before it sends again. The form of replies loses nothing: "bulk", `*[array]`,
`%[map]`, `~[set]`, `>[push]`, and the first byte of RESP before all else. `record` writes replies.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.redis.differential.compare import alike
from tests.redis.differential.endpoints import Endpoint, Session
from tests.redis.differential.resp import Argv, Malformed, Node, parse
from tests.redis.differential.runner import quoted

FOLDER = Path(__file__).parent / "traps"

Said = tuple[int, Node]
"""Which client received what."""


@dataclass
class Line:
    """A command, or a wait, and what is to follow."""

    who: int
    text: str
    argv: Argv = ()
    sleep_ms: int = 0
    said: list[Said] = field(default_factory=list)


@dataclass
class Section:
    """A sequence on an empty server."""

    title: str
    notes: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"(?=\s|$)|(\S+)')
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})|\\(.)")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def sections(path: Path, *, replies: bool = True) -> list[Section]:
    """What a file holds, with the replies or just the commands."""
    found: list[Section] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith("## "):
            found.append(Section(text[3:]))
        elif text.startswith("# ") or not text.strip():
            if found and text and not found[-1].lines:
                found[-1].notes.append(text)
        elif text.startswith("  "):
            if not replies:
                continue
            who, reply = _addressed(text[2:], found[-1].lines[-1].who)
            found[-1].lines[-1].said.append((who, unrendered(reply)))
        elif text.startswith("!sleep "):
            found[-1].lines.append(Line(0, text, sleep_ms=int(text[7:])))
        else:
            who, command = _addressed(text, 0)
            found[-1].lines.append(Line(who, text, words(command.encode())))
    return found


def _addressed(text: str, usual: int) -> tuple[int, str]:
    if text[:1].isdigit() and text[1:3] == "> ":
        return int(text[0]) - 1, text[3:]
    return usual, text


def words(line: bytes) -> Argv:
    """A line of redis-cli as its words."""
    return tuple(
        _ESCAPE.sub(_unescaped, match[1]) if match[1] is not None else match[2]
        for match in _WORD.finditer(line)
    )


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return _PLAIN.get(match[2], match[2])


def play(endpoint: Endpoint, section: Section, *, patient: bool = False) -> list[list[Said]]:
    """What each line of the section brings; `patient` waits for what is written to come."""
    sessions = [endpoint.session() for _ in range(1 + max(line.who for line in section.lines))]
    sessions[0].send([(b"FLUSHALL",), (b"SCRIPT", b"FLUSH"), (b"FUNCTION", b"FLUSH")])
    heard: list[list[Said]] = []
    waits: dict[int, int] = {}
    try:
        for index, line in enumerate(section.lines):
            if line.who in waits and not line.sleep_ms:
                # It may speak again only when it has its answer.
                late = sessions[line.who].later(1)
                heard[waits.pop(line.who)] += [(line.who, parse(reply)) for reply in late]
            heard.append(list(_heard(sessions, line, patient=patient)))
            if not any(who == line.who for who, _ in heard[-1]) and not line.sleep_ms:
                waits[line.who] = index
            for who, _ in heard[-1]:
                waits.pop(who, None)
    finally:
        for session in sessions:
            session.close()
    return heard


def _heard(sessions: Sequence[Session], line: Line, *, patient: bool) -> Iterator[Said]:
    due = [sum(who == index for who, _ in line.said) for index in range(len(sessions))]
    if line.sleep_ms:
        time.sleep(line.sleep_ms / 1000)
    else:
        least = due[line.who] if patient else 0
        for reply in sessions[line.who].step(line.argv, least):
            yield line.who, parse(reply)
    for who, session in enumerate(sessions):
        if who != line.who or line.sleep_ms:
            for reply in session.later(due[who] if patient else 0):
                yield who, parse(reply)


def differences(endpoint: Endpoint, section: Section) -> list[str]:
    """Where the endpoint does not answer as it is written."""
    try:
        heard = play(endpoint, section, patient=True)
    except (Malformed, OSError, AssertionError) as error:
        return [f"{section.title}: {type(error).__name__} {error}"]
    asked: dict[int, Argv] = {}
    found = []
    for line, said in zip(section.lines, heard, strict=True):
        asked[line.who] = line.argv or asked.get(line.who, ())
        fine = len(said) == len(line.said) and all(
            one == other and alike(asked.get(one, ()), ours, theirs)
            for (one, ours), (other, theirs) in zip(said, line.said, strict=True)
        )
        if not fine:
            written = _told(line.who, line.said) or "nothing"
            found.append(
                f"{section.title}: {line.text}\n  ours:      {_told(line.who, said) or 'nothing'}"
                f"\n  reference: {written}"
            )
    return found


def _told(who: int, said: Sequence[Said]) -> str:
    return " ".join(_addressee(who, one) + rendered(node) for one, node in said)


def _addressee(asked: int, who: int) -> str:
    return "" if asked == who else f"{who + 1}> "


def record(endpoint: Endpoint, path: Path) -> None:
    """Write the file anew with the replies of this endpoint, the reference."""
    replies = {
        (section.title, index): said
        for section in sections(path, replies=False)
        for index, said in enumerate(play(endpoint, section))
    }
    titles = [section.title for section in sections(path, replies=False)]
    assert len(titles) == len(set(titles)), f"{path}: two sections of one title"
    out, title, index = [], "", 0
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith("  "):
            continue
        out.append(text)
        if text.startswith("## "):
            title, index = text[3:], 0
        elif text.strip() and not text.startswith("# "):
            who = _addressed(text, 0)[0]
            out += [
                f"  {_addressee(who, one)}{rendered(node)}" for one, node in replies[title, index]
            ]
            index += 1
    path.write_text("\n".join(out) + "\n", encoding="utf-8")


def rendered(node: Node) -> str:
    """A reply on one line; two replies of different bytes never look the same."""
    kind = node.kind.decode()
    if isinstance(node.value, tuple):
        return f"{kind}[{', '.join(map(rendered, node.value))}]"
    if node.value is None:
        return f"{kind}-1"
    if node.kind == b"$":
        return _string(node.value)
    if node.kind == b"=":
        return f"={_string(node.value)}"
    text = node.value.decode("latin-1")
    return kind + (_string(node.value) if set(text) & set(',]"') else text)


def _string(value: bytes) -> str:
    text = quoted((value,))
    return text if text.startswith('"') else f'"{text}"'


def unrendered(text: str) -> Node:
    """What `rendered` wrote."""
    node, end = _read(text, 0)
    assert end == len(text), text
    return node


_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BARE = re.compile(r"[^,\]\n]*")


def _read(text: str, at: int) -> tuple[Node, int]:
    kind = text[at]
    match = _QUOTED.match(text, at + (kind != '"')) if kind in '"=+-' else None
    if match is not None:
        value = _ESCAPE.sub(_unescaped, match[1].encode("latin-1"))
        return Node(b"$" if kind == '"' else kind.encode(), value), match.end()
    if kind in "*%~>|" and text[at + 1 : at + 2] == "[":
        nodes, at = [], at + 2
        while text[at] != "]":
            node, at = _read(text, at)
            nodes.append(node)
            at += 2 * (text[at] == ",")
        return Node(kind.encode(), tuple(nodes)), at + 1
    if text[at : at + 3] in ("$-1", "*-1"):
        return Node(kind.encode(), None), at + 3
    match = _BARE.match(text, at + 1)
    assert match is not None
    return Node(kind.encode(), match[0].encode("latin-1")), match.end()
