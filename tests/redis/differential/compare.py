"""When two replies to the same command are the same: byte for byte, but for what Redis leaves open.

Left open are the order of sets, hashes and listings of keys, what a cursor is, random picks (their
shape is compared here, the runner checks that they are members), clocks (a small tolerance) and
texts about the server itself. Everything else, error lines included, must be equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.redis.differential.resp import Argv, Node, parse

TIME_MS = 3_000
"""Two servers get the same command that much apart at most, on a machine that is busy."""

PICKS = {b"SPOP"}
SCANS = {b"SCAN": 1, b"SSCAN": 2, b"HSCAN": 2, b"ZSCAN": 2}
"""Where the cursor stands."""

Same = Callable[[Argv, Node, Node], bool]


def same(argv: Argv, ours: bytes, theirs: bytes) -> bool:
    """Whether both replies to `argv` say the same."""
    return ours == theirs or alike(argv, parse(ours), parse(theirs))


def alike(argv: Argv, ours: Node, theirs: Node) -> bool:
    """The same, of replies that were read."""
    if ours == theirs:
        return True
    if b"-" in (ours.kind, theirs.kind) or not argv:
        return False
    name = argv[0].upper()
    second = argv[1].upper() if len(argv) > 1 else b""
    rule = _RULES.get(name + b" " + second) or _RULES.get(name)
    return rule is not None and rule(argv, ours, theirs)


def shape(node: Node) -> object:
    """Kinds and lengths; what is in the leaves does not count."""
    if isinstance(node.value, tuple):
        return (node.kind, tuple(map(shape, node.value)))
    return (node.kind, node.value is None)


def _canon(node: Node, pairs: bool) -> object:
    assert isinstance(node.value, tuple)
    items: Sequence[object] = node.value
    if pairs or node.kind == b"%":
        if len(items) % 2:
            return node
        items = list(zip(items[::2], items[1::2], strict=True))
    return (node.kind, sorted(items, key=repr))


def _unordered(argv: Argv, ours: Node, theirs: Node) -> bool:
    if not (isinstance(ours.value, tuple) and isinstance(theirs.value, tuple)):
        return False
    return _canon(ours, False) == _canon(theirs, False)


def _unordered_throughout(argv: Argv, ours: Node, theirs: Node) -> bool:
    """Libraries, and the functions of each, stand in the order of their hashes."""
    return repr(_sorted(ours)) == repr(_sorted(theirs))


def _sorted(node: Node) -> object:
    if not isinstance(node.value, tuple):
        return node
    return (node.kind, sorted(map(_sorted, node.value), key=repr))


def _unordered_pairs(argv: Argv, ours: Node, theirs: Node) -> bool:
    if not (isinstance(ours.value, tuple) and isinstance(theirs.value, tuple)):
        return False
    return _canon(ours, True) == _canon(theirs, True)


def _begins(cursor: bytes) -> bool:
    """Whether a scan begins with this cursor. What is no number is refused."""
    try:
        return int(cursor) == 0
    except ValueError:
        return True


def _scan(argv: Argv, ours: Node, theirs: Node) -> bool:
    """Of two scans that are over: the cursors are equal, the elements in any order. Redis does not
    define what follows a cursor that no scan returned.
    """
    if not _begins(argv[SCANS[argv[0].upper()]]):
        return ours.kind == theirs.kind
    if not (isinstance(ours.value, tuple) and isinstance(theirs.value, tuple)):
        return False
    if len(ours.value) != 2 or len(theirs.value) != 2 or ours.value[0] != theirs.value[0]:
        return False
    rule = _unordered if argv[0].upper() in (b"SCAN", b"SSCAN") else _unordered_pairs
    return rule(argv, ours.value[1], theirs.value[1])


def _config(argv: Argv, ours: Node, theirs: Node) -> bool:
    """All settings include ports, paths and some that only one of two servers has."""
    if b"*" in argv[2:]:
        return ours.kind == theirs.kind
    return _unordered_pairs(argv, ours, theirs)


def _shape(argv: Argv, ours: Node, theirs: Node) -> bool:
    return shape(ours) == shape(theirs)


def _kind(argv: Argv, ours: Node, theirs: Node) -> bool:
    return ours.kind == theirs.kind


def near(ours: Node, theirs: Node, tolerance: int) -> bool:
    """Two positive integers, not far from each other."""
    if ours == theirs:
        return True
    if ours.kind != b":" or theirs.kind != b":":
        return False
    first, second = int(ours.value or b""), int(theirs.value or b"")  # type: ignore[arg-type]
    return min(first, second) >= 0 and abs(first - second) <= tolerance


def _near_ms(argv: Argv, ours: Node, theirs: Node) -> bool:
    return near(ours, theirs, TIME_MS)


def _near_s(argv: Argv, ours: Node, theirs: Node) -> bool:
    return near(ours, theirs, TIME_MS // 1000)


def _pending(argv: Argv, ours: Node, theirs: Node) -> bool:
    """XPENDING's long form: id, consumer, idle time, deliveries."""
    if not (isinstance(ours.value, tuple) and isinstance(theirs.value, tuple)):
        return False
    if shape(ours) != shape(theirs):
        return False
    for one, other in zip(ours.value, theirs.value, strict=True):
        first, second = one.value, other.value
        if not (isinstance(first, tuple) and isinstance(second, tuple) and len(first) == 4):
            return False
        if (*first[:2], first[3]) != (*second[:2], second[3]):
            return False
        if not near(first[2], second[2], TIME_MS):
            return False
    return True


def _hello(argv: Argv, ours: Node, theirs: Node) -> bool:
    """The number of the client is its server's affair."""
    if shape(ours) != shape(theirs) or not isinstance(ours.value, tuple):
        return False
    assert isinstance(theirs.value, tuple)
    names = (None, *theirs.value)
    return all(
        one == other or (before is not None and before.value == b"id")
        for before, one, other in zip(names, ours.value, theirs.value, strict=False)
    )


def _exec(argv: Argv, ours: Node, theirs: Node) -> bool:
    """Where it is not known what was queued: the same, but for the number in a HELLO."""
    if not (isinstance(ours.value, tuple) and isinstance(theirs.value, tuple)):
        return False
    return shape(ours) == shape(theirs) and all(
        one == other or _hello(argv, one, other)
        for one, other in zip(ours.value, theirs.value, strict=True)
    )


def inner(argv: Argv) -> Argv:
    """Of a script that only calls what it is given: what that is."""
    if argv[0].upper() in (b"EVAL", b"EVALSHA", b"FCALL") and len(argv) > 3 and argv[2] == b"0":
        return argv[3:]
    return ()


def _script(argv: Argv, ours: Node, theirs: Node) -> bool:
    command = inner(argv)
    if not command:
        return False
    if command[0].upper() in PICKS:
        return _shape(command, ours, theirs)
    return alike(command, ours, theirs)


_RULES: dict[bytes, Same] = {
    **dict.fromkeys((b"SMEMBERS", b"KEYS"), _unordered),
    **dict.fromkeys((b"HKEYS", b"HVALS", b"PUBSUB CHANNELS"), _unordered),
    b"HGETALL": _unordered_pairs,
    b"CONFIG GET": _config,
    **dict.fromkeys(SCANS, _scan),
    b"TTL": _near_s,
    b"PTTL": _near_ms,
    **dict.fromkeys(PICKS, _shape),
    **dict.fromkeys((b"TIME",), _shape),
    **dict.fromkeys((b"INFO", b"COMMAND", b"CLIENT LIST", b"CLIENT INFO", b"CLIENT ID"), _kind),
    b"COMMAND COUNT": _kind,
    b"FUNCTION LIST": _unordered_throughout,
    b"XPENDING": _pending,
    b"HELLO": _hello,
    b"EXEC": _exec,
    b"EVAL": _script,
    b"EVALSHA": _script,
    b"FCALL": _script,
}
