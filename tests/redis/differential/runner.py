"""One program of commands on two servers, every reply compared, and at the end all the data.

A program of one session is sent in long runs, so that thousands of commands a second are compared;
a run ends where the next command depends on what the servers chose freely. Programs of several
sessions go command by command, and after each one all sessions tell what they received meanwhile.
After a free choice that changes data (SPOP) ours is made to hold what the reference holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.redis.differential.compare import PICKS, SCANS, alike, inner, near, same, shape
from tests.redis.differential.endpoints import Endpoint, Session, Silent
from tests.redis.differential.resp import Argv, Malformed, Node, parse

DATABASES = (b"0", b"1", b"2")
"""Where programs leave data; all else is emptied between programs unseen."""
_QUEUED = b"+QUEUED\r\n"
FAREWELLS = (b"UNSUBSCRIBE", b"PUNSUBSCRIBE")
SUBSCRIPTIONS = (b"SUBSCRIBE", b"PSUBSCRIBE", *FAREWELLS)


class Difference(AssertionError):
    """The servers do not agree."""

    def __init__(self, text: str, argv: Argv = ()) -> None:
        super().__init__(text)
        self.argv = argv


@dataclass
class Client:
    """A session on each server, and what we know of it from the reference."""

    ours: Session
    theirs: Session
    queued: list[Argv] | None = None
    waiting: Argv | None = None

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@dataclass
class Pair:
    """Two servers, which belong to who made them; programs leave nothing behind."""

    ours: Endpoint
    theirs: Endpoint
    keepers: tuple[Session, Session] = field(init=False)

    def __post_init__(self) -> None:
        self.keepers = (self.ours.session(), self.theirs.session())

    def run(self, program: Sequence[Argv]) -> None:
        """A program of one session."""
        self._clean()
        client = Client(self.ours.session(), self.theirs.session())
        try:
            _OneSession(client, program).run()
            self.compare_data(program)
        except (Malformed, Silent) as error:
            raise Difference(f"{show(program)}\n  {type(error).__name__} {error}") from error
        finally:
            client.close()

    def run_sessions(self, program: Sequence[tuple[int, Argv]], count: int) -> None:
        """A program of several sessions: (which, what)."""
        self._clean()
        shown = [(b"%d>" % (who + 1), *argv) for who, argv in program]
        clients = [Client(self.ours.session(), self.theirs.session()) for _ in range(count)]
        try:
            _Sessions(clients, program).run()
            self.compare_data(shown)
        except (Malformed, Silent) as error:
            raise Difference(f"{show(shown)}\n  {type(error).__name__} {error}") from error
        finally:
            for client in clients:
                client.close()

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()

    def _clean(self) -> None:
        for keeper in self.keepers:
            keeper.send([(b"FLUSHALL",), (b"SCRIPT", b"FLUSH"), (b"FUNCTION", b"FLUSH")])

    def compare_data(self, program: Sequence[Argv]) -> None:
        """Every key of both: its type, what it holds and how long it will live."""
        for database in DATABASES:
            ours, theirs = (_content(keeper, database) for keeper in self.keepers)
            for key in sorted({*ours, *theirs}):
                if not _same_content(ours.get(key), theirs.get(key)):
                    raise Difference(
                        f"{show(program)}\nafter this, key {quoted((key,))} of {database.decode()}"
                        f"\n  ours:      {_told(ours.get(key))}"
                        f"\n  reference: {_told(theirs.get(key))}",
                        next((argv for argv in reversed(program) if key in argv), program[-1]),
                    )


class _OneSession:
    """Sends run after run."""

    def __init__(self, client: Client, program: Sequence[Argv]) -> None:
        self._client = client
        self._program = program

    def run(self) -> None:
        start = 0
        for end, argv in enumerate(self._program):
            if _breaks(argv):
                self._together(start, end)
                self._alone(end)
                start = end + 1
        self._together(start, len(self._program))

    def _together(self, start: int, end: int) -> None:
        if start == end:
            return
        commands = self._program[start:end]
        theirs = self._client.theirs.send(commands)
        ours = self._ask(start, commands)
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True), start):
            judge(self._client, self._program[at], one, other, self._program[: at + 1])

    def _ask(self, at: int, commands: Sequence[Argv]) -> list[bytes]:
        try:
            return self._client.ours.send(commands)
        except (Silent, Malformed, OSError) as error:
            if len(commands) == 1:
                raise Difference(
                    f"{show(self._program[: at + 1])}\n  ours: {type(error).__name__} {error}",
                    commands[0],
                ) from error
            raise Difference(
                f"{show(self._program[: at + len(commands)])}"
                f"\n  ours, somewhere in the last {len(commands)}: {type(error).__name__} {error}",
                commands[-1],
            ) from error

    def _alone(self, at: int) -> None:
        argv, client, seen = self._program[at], self._client, self._program[: at + 1]
        name = argv[0].upper()
        if _is_open(client, argv):
            return
        if name in SCANS:
            ours, theirs = _scanned(client.ours, argv), _scanned(client.theirs, argv)
            judge(client, argv, ours, theirs, seen)
            return
        filled = _filled(client.theirs, argv)
        other = client.theirs.send([filled])[0]
        one = self._ask(at, [filled])[0]
        judge(client, argv, one, other, seen)
        if name in PICKS and client.queued is None and other[:1] != b"-":
            _check_pick(client, argv, parse(one), parse(other), seen)


class _Sessions:
    """Sends command by command and listens to everybody."""

    def __init__(self, clients: Sequence[Client], program: Sequence[tuple[int, Argv]]) -> None:
        self._clients = clients
        self._program = program

    def run(self) -> None:
        for at, (who, argv) in enumerate(self._program):
            client = self._clients[who]
            if client.waiting is not None or (client.queued is not None and _takes_dump(argv)):
                # In a transaction the reference would queue the question for the dump.
                continue
            if _is_open(client, argv):
                continue
            filled = _filled(client.theirs, argv)
            theirs = client.theirs.step(filled, 0)
            ours = client.ours.step(filled, len(theirs))
            if not theirs:
                client.waiting = argv
            self._judge(at, who, argv, ours, theirs)
            for index, other in enumerate(self._clients):
                if index != who:
                    theirs = other.theirs.later(0)
                    ours = other.ours.later(len(theirs))
                    self._judge(at, index, other.waiting or (), ours, theirs)
                    if theirs:
                        other.waiting = None

    def _judge(self, at: int, who: int, argv: Argv, ours: list[bytes], theirs: list[bytes]) -> None:
        seen = [(b"%d>" % (index + 1), *words) for index, words in self._program[: at + 1]]
        if len(ours) != len(theirs):
            raise Difference(
                f"{show(seen)}\nsession {who + 1} receives\n  ours:      {ours}"
                f"\n  reference: {theirs}",
                argv,
            )
        if _any_order(argv, ours, theirs):
            return
        client = self._clients[who]
        if argv and argv[0].upper() == b"EXEC" and _same_told(client.queued or (), ours, theirs):
            client.queued = None
            return
        for one, other in zip(ours, theirs, strict=True):
            judge(client, argv, one, other, seen)


def _any_order(argv: Argv, ours: list[bytes], theirs: list[bytes]) -> bool:
    """One message that fits several patterns, and the farewells to all channels: in any order."""
    if argv and argv[0].upper() in FAREWELLS:
        if len(argv) > 1 or theirs == [_QUEUED]:
            return False
        # Which channel goes first is open, the count that is left after each is not.
        first, second = ([parse(reply).leaves() for reply in some] for some in (ours, theirs))
        return [said[2:] for said in first] == [said[2:] for said in second] and sorted(
            said[:2] for said in first
        ) == sorted(said[:2] for said in second)
    if argv and argv[0].upper() == b"EXEC":
        first, second = map(_farewells, (ours, theirs))
        return first == second
    return any(b"pmessage" in reply for reply in theirs) and sorted(ours) == sorted(theirs)


def _farewells(replies: list[bytes]) -> object:
    """What EXEC sent, with the channels of farewells sorted and without them where they stood."""
    told = [reply.partition(b"unsubscribe\r\n") for reply in replies]
    channels = sorted(
        before + word + rest.rpartition(b":")[0] for before, word, rest in told if word
    )
    return channels, [rest.rpartition(b":")[2] if word else before for before, word, rest in told]


def judge(client: Client, argv: Argv, one: bytes, other: bytes, seen: Sequence[Argv]) -> None:
    """Compare one reply; keep track of MULTI, so that EXEC's parts are compared by their rules."""
    name = argv[0].upper() if argv else b""
    queued = client.queued
    if queued is not None and other == _QUEUED:
        queued.append(argv)
    elif name == b"MULTI" and other == b"+OK\r\n":
        client.queued = []
    elif name in (b"EXEC", b"DISCARD", b"RESET") and not (queued and other[:4] == b"-ERR"):
        client.queued = None
    try:
        if one == other or (name == b"EXEC" and queued and _same_exec(queued, one, other)):
            return
        fine = same(argv, one, other) or ({one, other} == _SET_OR_NOT and _is_tie(argv, seen))
    except Malformed as error:
        raise Difference(f"{show(seen)}\n  ours is not RESP: {error}", argv) from error
    if not fine:
        raise Difference(f"{show(seen)}\n  ours:      {one!r}\n  reference: {other!r}", argv)


_SET_OR_NOT: Final = {b":0\r\n", b":1\r\n"}


def _is_tie(argv: Argv, seen: Sequence[Argv]) -> bool:
    """Whether EXPIRE with GT or LT compares a time to live with an equal one, which an earlier
    command may have set: the millisecond decides. How long keys live is compared at the end.
    """
    words = [word.upper() for word in inner(argv) or argv]
    return (
        len(words) > 3
        and words[0] in (b"EXPIRE", b"PEXPIRE")
        and bool({b"GT", b"LT"}.intersection(words[3:]))
        and any(words[2] in map(bytes.upper, earlier) for earlier in seen[:-1])
    )


def _same_exec(queued: Sequence[Argv], one: bytes, other: bytes) -> bool:
    ours, theirs = parse(one), parse(other)
    return (
        isinstance(ours.value, tuple)
        and isinstance(theirs.value, tuple)
        and len(ours.value) == len(theirs.value) == len(queued)
        and all(map(alike, queued, ours.value, theirs.value))
    )


def _same_told(queued: Sequence[Argv], ours: list[bytes], theirs: list[bytes]) -> bool:
    """EXEC counts commands, and a client that subscribes is told more than a word for each: which
    command an element is of, and whether it stands in the reply or behind it, is not known.
    """
    if not ours or not any(argv[0].upper() in SUBSCRIPTIONS for argv in queued):
        return False
    (one, *ours_behind), (other, *theirs_behind) = map(parse, ours), map(parse, theirs)
    if not (isinstance(one.value, tuple) and isinstance(other.value, tuple)):
        return False
    first, second = [*one.value, *ours_behind], [*other.value, *theirs_behind]
    return len(one.value) == len(other.value) == len(queued) and all(
        _same_farewell(*pair) or any(alike(argv, *pair) for argv in queued)
        for pair in zip(first, second, strict=True)
    )


def _same_farewell(one: Node, other: Node) -> bool:
    """Which of all its channels a client leaves first is open, how many are left is not."""
    ours, theirs = one.leaves(), other.leaves()
    word = ours[0].value
    return isinstance(word, bytes) and word.upper() in FAREWELLS and ours[::2] == theirs[::2]


def _breaks(argv: Argv) -> bool:
    name = argv[0].upper()
    return name in PICKS or name in SCANS or _takes_dump(argv) or _by_texts(argv)


def _by_texts(argv: Argv) -> bool:
    return any(b"LEX" in word.upper() for word in argv)


def _is_open(client: Client, argv: Argv) -> bool:
    """Whether Redis does not define the reply: a range by texts of a sorted set with several
    scores. In a transaction, the scores cannot be read.
    """
    command = inner(argv) or argv
    if not _by_texts(command) or len(command) < 2:
        return False
    if client.queued is not None:
        return True
    told = client.theirs.send([(b"ZRANGE", command[1], b"0", b"-1", b"WITHSCORES")])[0]
    return len(set(parse(told).leaves()[1::2])) > 1


def _takes_dump(argv: Argv) -> bool:
    return any(word.startswith(b"@DUMP ") for word in argv)


def _filled(session: Session, argv: Argv) -> Argv:
    """`@DUMP key` stands for what the reference says to DUMP key; nothing for a stream, which we do
    not restore.
    """
    if not _takes_dump(argv):
        return argv
    filled = []
    for word in argv:
        if word.startswith(b"@DUMP "):
            kind, dump = session.send([(b"TYPE", word[6:]), (b"DUMP", word[6:])])
            told = None if kind == b"+stream\r\n" else parse(dump).value
            word = told if isinstance(told, bytes) else b""
        filled.append(word)
    return tuple(filled)


def _scanned(session: Session, argv: Argv) -> bytes:
    """A scan to its end: the elements of all its pages, each once, under the last cursor."""
    where = SCANS[argv[0].upper()]
    found: dict[object, bytes] = {}
    first = reply = session.send([argv])[0]
    width = 1 if where == 1 or argv[0].upper() == b"SSCAN" else 2
    for _ in range(10_000):
        node = parse(reply)
        if not (isinstance(node.value, tuple) and len(node.value) == 2):
            return reply
        cursor, page = node.value
        if not isinstance(page.value, tuple) or not isinstance(cursor.value, bytes):
            return reply
        if reply is first and cursor.value == b"0":
            return reply
        texts = [b"$%d\r\n%b\r\n" % (len(leaf.value), leaf.value) for leaf in page.value]  # type: ignore[arg-type,str-bytes-safe]
        for at in range(0, len(texts), width):
            found[texts[at]] = b"".join(texts[at : at + width])
        if cursor.value == b"0":
            pages = b"".join(found.values())
            return b"*2\r\n$1\r\n0\r\n*%d\r\n%b" % (len(found) * width, pages)
        reply = session.send([(*argv[:where], cursor.value, *argv[where + 1 :])])[0]
    raise Difference(f"{quoted(argv)}: a scan without end", argv)


def _check_pick(client: Client, argv: Argv, ours: Node, theirs: Node, seen: Sequence[Argv]) -> None:
    """What we took was there to be taken; then both sets are made equal again."""
    picked, drawn = ours.leaves(), theirs.leaves()
    there = parse(client.theirs.send([(b"SMEMBERS", argv[1])])[0]).leaves() + drawn
    fine = all(leaf in there or leaf.value is None or leaf.kind == b"_" for leaf in picked)
    if not fine or len(set(picked)) != len(picked) or shape(ours) != shape(theirs):
        raise Difference(f"{show(seen)}\n  ours picked {picked}\n  out of {there}", argv)
    if set(picked) != set(drawn):
        back = tuple(leaf.value for leaf in picked if isinstance(leaf.value, bytes))
        gone = tuple(leaf.value for leaf in drawn if isinstance(leaf.value, bytes))
        client.ours.send([(b"SADD", argv[1], *back), (b"SREM", argv[1], *gone)])


_CONTENT: dict[bytes, tuple[bytes, ...]] = {
    b"string": (b"GET",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
    b"hash": (b"HGETALL",),
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
    b"stream": (b"XRANGE", b"-", b"+"),
}

Content = tuple[bytes, bytes, Argv, Node]
"""Of a key: TYPE's reply, PTTL's, the command that was asked for what it holds, its reply."""


def _content(session: Session, database: bytes) -> dict[bytes, Content]:
    names = parse(session.send([(b"SELECT", database), (b"KEYS", b"*")])[1])
    keys = [node.value for node in names.leaves() if isinstance(node.value, bytes)]
    if not keys:
        return {}
    types = session.send([(b"TYPE", key) for key in keys])
    lives = session.send([(b"PTTL", key) for key in keys])
    asked: list[Argv] = []
    for key, kind in zip(keys, types, strict=True):
        words = _CONTENT.get(kind[1:-2], (b"EXISTS",))
        asked.append((words[0], key, *words[1:]))
    told = map(parse, session.send(asked))
    return {
        key: rest
        for key, *rest in zip(keys, types, lives, asked, told, strict=True)  # type: ignore[misc]
    }


def _same_content(ours: Content | None, theirs: Content | None) -> bool:
    if ours is None or theirs is None:
        return False
    if ours[0] != theirs[0] or not near(parse(ours[1]), parse(theirs[1]), 3000):
        return False
    return alike(theirs[2], ours[3], theirs[3])


def _told(content: Content | None) -> str:
    if content is None:
        return "no such key"
    return f"{content[0][1:-2].decode()}, PTTL {content[1][1:-2].decode()}, {plain(content[3])}"


def plain(node: Node) -> str:
    """A reply on one line."""
    if isinstance(node.value, tuple):
        return f"{node.kind.decode()}[{', '.join(map(plain, node.value))}]"
    return f"{node.kind.decode()}{node.value!r}"


def quoted(argv: Argv) -> str:
    """A command as a person types it into redis-cli."""
    return " ".join(map(_quoted, argv))


def _quoted(word: bytes) -> str:
    text = repr(word)[2:-1].replace('"', '\\"').replace("\\'", "'")
    plain_word = text == word.decode("latin-1") and text and not set(text) & set(" '\"#")
    return text if plain_word else f'"{text}"'


def show(program: Sequence[Argv]) -> str:
    """A program, one command a line."""
    return "\n".join(f"  {quoted(argv)}" for argv in program)
