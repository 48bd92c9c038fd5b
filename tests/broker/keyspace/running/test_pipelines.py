"""A pipeline that is run as a whole does what its commands do one after the other.

Two keyspaces get the same commands, one as pipelines, one command at a time; replies, effects,
values and what watchers are told must agree, whatever the keys hold before.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.session import watch_keys

KEYS = st.sampled_from([b"plain", b"absent", b"ends", b"ended", b"list", b"changed", b"watched"])
VALUES = st.sampled_from([b"", b"v", b"w" * 2_000])
PIPELINES = st.lists(
    st.one_of(
        st.lists(st.tuples(st.just(b"GET"), KEYS), max_size=8),
        st.lists(st.tuples(st.just(b"set"), KEYS, VALUES), max_size=8),
        st.lists(st.tuples(st.just(b"SET"), KEYS, VALUES, st.just(b"NX")), max_size=8),
        st.lists(st.tuples(st.just(b"GET")), max_size=8),
        st.lists(st.tuples(st.just(b"HELLO"), st.just(b"3")), min_size=1, max_size=1),
        st.lists(st.tuples(st.just(b"SELECT"), st.just(b"3")), min_size=1, max_size=1),
        st.lists(st.tuples(st.sampled_from([b"GET", b"STRLEN"]), KEYS), max_size=8),
    ),
    max_size=8,
)
BEFORE = (
    (b"SET", b"plain", b"v"),
    (b"SET", b"ends", b"v", b"PXAT", b"9000"),
    (b"SET", b"ended", b"v", b"PXAT", b"1500"),
    (b"RPUSH", b"list", *(b"%d" % number for number in range(300))),
    (b"SET", b"changed", b"x"),
)


class _Server:
    def __init__(self) -> None:
        self.keyspace = Keyspace(Random(1))
        self.executor = Executor(self.keyspace)
        self.executor.begin(1_000)
        self.session = self.executor.connect(1_000)
        self.watching = self.executor.connect(1_000)

    def run(self, *commands: tuple[bytes, ...], at_once: bool) -> bytes:
        argvs = [list(command) for command in commands]
        for some in [argvs] if at_once else [[argv] for argv in argvs]:
            assert self.executor.handle(self.session, some) == len(some)
        out, self.session.out = self.session.out, []
        return b"".join(out)

    def state(self) -> object:
        return (
            [(d.values, d.expires) for d in self.keyspace.databases],
            self.keyspace.dirty,
            [len(value) for value in self.keyspace.garbage],
            self.keyspace.take_effects(),
            self.watching.dirty_watch,
            self.executor.server.commands_run,
        )


@given(
    pipelines=PIPELINES,
    before=st.lists(st.sampled_from(BEFORE), max_size=5),
    watches=st.booleans(),
)
def test_it_is_as_one_by_one(
    pipelines: list[list[tuple[bytes, ...]]], before: list[tuple[bytes, ...]], watches: bool
) -> None:
    whole, single = _Server(), _Server()
    for server in (whole, single):
        server.run(*before, at_once=False)
        if watches:
            watch_keys(server.watching, [b"watched"], server.keyspace.now_ms)
        server.executor.begin(2_000)
    for commands in pipelines:
        asked = whole.run(*commands, at_once=True), single.run(*commands, at_once=False)
        assert asked[0] == asked[1]
        assert whole.state() == single.state()
