"""Scripts of the family `scripts`: small ones that return, raise, convert and misbehave.

Each is a value of the pool `script`, `sha` has their digests, `library` and `function` are for
FUNCTION LOAD and FCALL. Beside them any command of the other families may be called through
`return redis.call(unpack(ARGV))`, whose reply passes the conversions to Lua and back.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from tests.redis.differential.compare import SCANS
from tests.redis.differential.grammar import Form, Words, commands
from tests.redis.differential.pools import sha

CALL = b"return redis.call(unpack(ARGV))"
PCALL = b"return redis.pcall(unpack(ARGV))"

SCRIPTS = [
    line.encode()
    for line in (Path(__file__).parent / "families" / "scripts.lua").read_text().splitlines()
    if line and not line.startswith("-- ")
]

LIBRARIES = [
    b"#!lua name=one\nredis.register_function('f1', function(keys, args) return args[1] end)",
    b"#!lua name=one\nredis.register_function('f1', function(keys, args) return #keys end)\n"
    b"redis.register_function{function_name='f2', callback=function(keys, args) "
    b"return redis.call('get', keys[1]) end, flags={'no-writes'}}",
    b"#!lua name=two\nlocal function set(keys, args) "
    b"return redis.call('set', keys[1], args[1]) end\n"
    b"redis.register_function{function_name='f3', callback=set, description='sets'}",
    b"#!lua name=two\nredis.register_function('f1', function() return 'two' end)",
    b"#!lua name=three\nredis.register_function{function_name='f4', callback=function(keys, args) "
    b"return redis.call('set', keys[1], 'x') end, flags={'no-writes'}}",
    b"#!lua name=bad\nredis.register_function('f', 5)",
    b"#!lua name=empty\nreturn 1",
    b"#!lua\nreturn 1",
    b"#!js name=x\nreturn 1",
    b"no shebang",
    b"#!lua name=syntax\nreturn (",
    b"#!lua name=calls\nredis.call('set','a','1')",
]

_BAD = {b"SPOP", b"XREADGROUP", b"SUBSCRIBE", *SCANS}
"""What chooses freely cannot be followed inside a script."""


def pools() -> dict[str, Words]:
    """The pools that forms of the family draw from."""
    one = [(script,) for script in SCRIPTS]
    return {
        "script": st.sampled_from(one),
        "sha": st.sampled_from([(sha(script),) for script in SCRIPTS]),
        "library": st.sampled_from([(text,) for text in LIBRARIES]),
        "function": st.sampled_from([(b"f%d" % i,) for i in range(1, 6)]),
    }


def calls(forms: list[Form]) -> Words:
    """Commands of these forms, each called by a script."""
    inner = commands([form for form in forms if not _BAD & set(form.names)])
    script = st.sampled_from([CALL, CALL, PCALL])
    return st.builds(lambda text, argv: (b"EVAL", text, b"0", *argv), script, inner)
