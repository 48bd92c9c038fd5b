"""Requests, and what they are: name, bytes, the commands in them, and the error at their end.

What is expected here is shown to be what the real redis-server does by the test that asks it.
"""

from __future__ import annotations

from typing import TypeAlias

Commands: TypeAlias = list[list[bytes]]
Case: TypeAlias = tuple[str, bytes, Commands, bytes | None]

LINE = 64 << 10

# Enough commands that they are cut as a pipeline.
MANY = b"*2\r\n$4\r\nECHO\r\n$3\r\na+b\r\n" * 30
MANY_READ = [[b"ECHO", b"a+b"]] * 30

PING = b"*1\r\n$4\r\nPING\r\n"

REQUESTS: list[Case] = [
    ("nothing", b"", [], None),
    ("one", PING, [[b"PING"]], None),
    ("two", PING + PING, [[b"PING"], [b"PING"]], None),
    ("an empty argument", b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [[b"ECHO", b""]], None),
    (
        "line ends in it",
        b"*2\r\n$4\r\nECHO\r\n$6\r\n\r\n$1\r\n\r\n",
        [[b"ECHO", b"\r\n$1\r\n"]],
        None,
    ),
    ("not whole", b"*2\r\n$4\r\nECHO\r\n$6\r\nabc", [], None),
    ("no line feed yet", b"*1\r\n$4\r\nPING\r", [], None),
    ("many", MANY, MANY_READ, None),
    ("many, then a zero before", MANY + b"*01\r\n", MANY_READ, b"invalid multibulk length"),
    ("many, then a size with a zero", MANY + b"*1\r\n$04\r\n", MANY_READ, b"invalid bulk length"),
    ("many and a part", MANY + b"*1\r\n$4\r\nPI", MANY_READ, None),
    (
        "ten thousand bytes",
        b"*2\r\n$4\r\nECHO\r\n$10000\r\n%b\r\n" % (b"y" * 10000),
        [[b"ECHO", b"y" * 10000]],
        None,
    ),
    (
        "a hundred arguments",
        b"*100\r\n$4\r\nMGET\r\n" + b"$1\r\nk\r\n" * 99,
        [[b"MGET"] + [b"k"] * 99],
        None,
    ),
    # No commands.
    ("count zero", b"*0\r\n" + PING, [[b"PING"]], None),
    ("count below zero", b"*-1\r\n*-99999999999\r\n" + PING, [[b"PING"]], None),
    ("many, then count zero", MANY + b"*0\r\n*-1\r\n" + MANY, MANY_READ + MANY_READ, None),
    ("empty lines", b"\r\n\n  \t\r\n" + PING, [[b"PING"]], None),
    # What is not looked at: both bytes behind a value, and the one behind a carriage return.
    ("sloppy line ends", b"*1\rX$4\rYPINGzz" + PING, [[b"PING"], [b"PING"]], None),
    ("many sloppy", b"*1\rX$4\rYPINGzz" * 40, [[b"PING"]] * 40, None),
    ("many with sloppy values", b"*1\r\n$4\r\nPINGzz" * 40, [[b"PING"]] * 40, None),
    ("heads with a lone return", b"*1\rJUNK\r\n$4\r\nPING\r\n" * 20, [], b"expected '$', got 'U'"),
    ("heads that share a line", b"*1\r$4\r\n$4\r\nPING\r\n" * 20, [], b"expected '$', got '4'"),
    # Typed.
    ("typed", b"PING\r\n", [[b"PING"]], None),
    ("typed without carriage return", b"PING\n", [[b"PING"]], None),
    (
        "typed before and behind",
        b"PING\r\n" + PING + b"ECHO a\r\n",
        [[b"PING"], [b"PING"], [b"ECHO", b"a"]],
        None,
    ),
    (
        "typed among many",
        MANY + b"ECHO x\r\n" + MANY,
        [*MANY_READ, [b"ECHO", b"x"], *MANY_READ],
        None,
    ),
    ("answers are typed lines", b"$4\r\n+OK\r\n:1\r\n", [[b"$4"], [b"+OK"], [b":1"]], None),
    (
        "many, then answers",
        MANY + b"+OK\r\n:0\r\n#f\r\n" + MANY,
        [*MANY_READ, [b"+OK"], [b":0"], [b"#f"], *MANY_READ],
        None,
    ),
    (
        "a set is typed",
        MANY + b"~1\r\n$4\r\nPING\r\n" + MANY,
        [*MANY_READ, [b"~1"], [b"$4"], [b"PING"], *MANY_READ],
        None,
    ),
    ("blanks", b" ECHO \t a\r\n", [[b"ECHO", b"a"]], None),
    ("carriage return inside", b"PING a\rb\r\n", [[b"PING", b"a", b"b"]], None),
    ("vertical tab inside", b"ECHO a\vb\r\n", [[b"ECHO", b"a\vb"]], None),
    ("form feed before", b"ECHO \f\va\r\n", [[b"ECHO", b"a"]], None),
    (
        "double quotes",
        b'ECHO "a \\"b\\" \\x41\\xfF\\xg\\n\\r\\t\\b\\a\\q\\\\"\r\n',
        [[b"ECHO", b'a "b" A\xffxg\n\r\t\b\aq\\']],
        None,
    ),
    (
        "single quotes",
        b"ECHO 'a \\'b\\' \\n \\x41 \"\\\\ '\r\n",
        [[b"ECHO", b"a 'b' \\n \\x41 \"\\\\ "]],
        None,
    ),
    ("quotes behind a word", b'ECHO a"b c"\r\n', [[b"ECHO", b"ab c"]], None),
    ("empty quotes", b"ECHO ''\r\n", [[b"ECHO", b""]], None),
    ("a blank of the rare kind behind quotes", b"ECHO 'a'\v\r\n", [[b"ECHO", b"a"]], None),
    ("zero byte in a line", b"ECHO \0a\r\n" + PING, [], None),
    ("zero byte in a count", b"*1\0\r\n" + PING, [], None),
    ("zero byte in a size", b"*1\r\n$4\0\r\nPING\r\n", [], None),
    ("zero bytes in a value", b"*2\r\n$4\r\nECHO\r\n$2\r\n\0\0\r\n", [[b"ECHO", b"\0\0"]], None),
    # Refused.
    ("quotes not closed", b'PING\r\nECHO "a\r\n', [[b"PING"]], b"unbalanced quotes in request"),
    ("an escape at the end", b'ECHO "a\\\r\n', [], b"unbalanced quotes in request"),
    ("single quotes not closed", b"ECHO 'a\\'\r\n", [], b"unbalanced quotes in request"),
    ("more behind quotes", b'ECHO "a"b\r\n', [], b"unbalanced quotes in request"),
    ("quotes behind quotes", b"ECHO 'a''b'\r\n", [], b"unbalanced quotes in request"),
    ("no count", b"*\r\n", [], b"invalid multibulk length"),
    ("a word for a count", PING + b"*x\r\n", [[b"PING"]], b"invalid multibulk length"),
    ("a zero before the count", b"*01\r\n", [], b"invalid multibulk length"),
    ("a plus before the count", b"*+1\r\n", [], b"invalid multibulk length"),
    ("minus zero", b"*-0\r\n", [], b"invalid multibulk length"),
    ("a blank before the count", b"* 1\r\n", [], b"invalid multibulk length"),
    ("a line feed for both", b"*1\n$4\r\n", [], b"invalid multibulk length"),
    ("a count too large", MANY + b"*2147483648\r\n", MANY_READ, b"invalid multibulk length"),
    ("a count of 65 bits", b"*99999999999999999999\r\n", [], b"invalid multibulk length"),
    ("a count below 64 bits", b"*-9223372036854775809\r\n", [], b"invalid multibulk length"),
    ("the lowest count", b"*-9223372036854775808\r\n" + PING, [[b"PING"]], None),
    ("the largest count", b"*2147483647\r\n", [], None),
    ("many, then a large count", MANY + b"*1048577\r\n$1\r\na\r\n", MANY_READ, None),
    ("no size", b"*1\r\n$\r\n", [], b"invalid bulk length"),
    ("a size below zero", b"*1\r\n$-1\r\n", [], b"invalid bulk length"),
    (
        "many, then a size below zero",
        MANY + b"*1\r\n$-1\r\n" + MANY,
        MANY_READ,
        b"invalid bulk length",
    ),
    ("a size with a zero", b"*1\r\n$04\r\nPING\r\n", [], b"invalid bulk length"),
    ("a size too large", b"*1\r\n$536870913\r\n", [], b"invalid bulk length"),
    ("the largest size", b"*1\r\n$536870912\r\n", [], None),
    (
        "many, then a monstrous size",
        MANY + b"*1\r\n$999999999999\r\nabc",
        MANY_READ,
        b"invalid bulk length",
    ),
    ("a size with a line feed for both", b"*1\r\n$4\nPING\r\n", [], b"invalid bulk length"),
    ("no size at all", b"*1\r\nfoo\r\n", [], b"expected '$', got 'f'"),
    ("an empty line for a size", b"*1\r\n\r\n", [], b"expected '$', got ' '"),
    ("a line feed for a size", b"*1\r\n\nx\r\n", [], b"expected '$', got ' '"),
    ("a byte above ASCII", b"*1\r\n\xff\r\n", [], b"expected '$', got '\xff'"),
    *(
        (
            f"many, then {kind}",
            MANY + b"*2\r\n$4\r\nECHO\r\n" + element + MANY,
            MANY_READ,
            b"expected '$', got '%b'" % element[:1],
        )
        for kind, element in {
            "a number": b":5\r\n",
            "a status": b"+a\r\n",
            "an error": b"-a\r\n",
            "an array": b"*1\r\n$1\r\na\r\n",
            "a null": b"_\r\n",
            "a boolean": b"#t\r\n",
            "a double": b",1.5\r\n",
            "a large number": b"(123\r\n",
            "verbatim text": b"=5\r\ntxt:a\r\n",
            "a set": b"~1\r\n$1\r\na\r\n",
            "a push": b">1\r\n$1\r\na\r\n",
            "a map": b"%1\r\n$1\r\na\r\n$1\r\nb\r\n",
            "an attribute": b"|1\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        }.items()
    ),
    # A status is shorter by as much as verbatim text is longer than a value.
    (
        "lengths that even out",
        MANY + b"*2\r\n+0123456789\r\n=8\r\ntxt:PING\r\n",
        MANY_READ,
        b"expected '$', got '+'",
    ),
    ("sloppy, then a status", MANY + b"*2\r\n$1\r\nazz+b\r\n", MANY_READ, b"expected '$', got '+'"),
]

# Too long to be cut everywhere.
LONG: list[Case] = [
    ("the longest line waits", b"a" * LINE, [], None),
    ("a line too long", b"a" * (LINE + 1), [], b"too big inline request"),
    ("zero bytes without end", b"\0\r\n" + b"a" * LINE, [], b"too big inline request"),
    ("the longest count waits", b"*" + b"1" * (LINE - 1), [], None),
    ("a count too long", b"*" + b"1" * LINE, [], b"too big mbulk count string"),
    ("the longest size waits", b"*1\r\n$" + b"1" * (LINE - 1), [], None),
    ("a size too long", PING + b"*1\r\n$" + b"1" * LINE, [[b"PING"]], b"too big bulk count string"),
    (
        "the longest line",
        b"ECHO " + b"a" * (LINE - 5) + b"\n" + PING,
        [[b"ECHO", b"a" * (LINE - 5)], [b"PING"]],
        None,
    ),
    (
        "a large value",
        b"*2\r\n$4\r\nECHO\r\n$300000\r\n%b\r\n" % (b"z" * 300000) + MANY,
        [[b"ECHO", b"z" * 300000], *MANY_READ],
        None,
    ),
]
