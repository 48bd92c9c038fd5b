"""A keyspace that commands are sent to, and one that only applies its effects.

`Pair.send` gives replies as text without the lengths of bulk strings; `Pair.check` compares what
the two hold.
"""

from __future__ import annotations

import re
import shlex
from random import Random

from delaylog.broker.keyspace.effects import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from tests.broker.keyspace.snapshots.contents import contents_of

NOW_MS = 1_700_000_000_000


def words(line: str) -> list[bytes]:
    r"""The words of a line; `\xff` inside of double quotes is a byte."""
    found = [word.encode("latin-1").decode("unicode_escape") for word in shlex.split(line)]
    return [word.encode("latin-1") for word in found]


def shown(reply: bytes) -> str:
    """A reply in one line, without the lengths of bulk strings."""
    text = re.sub(rb"\$\d+\r\n", b"", reply).removesuffix(b"\r\n")
    return text.replace(b"\r\n", b" ").decode("latin-1").encode("unicode_escape").decode()


class Pair:
    """A leader and what follows it."""

    def __init__(self) -> None:
        self.leader = Keyspace(Random(1))
        self.follower = Keyspace(Random(2))
        self.follower.may_expire = False
        self.executor = Executor(self.leader)
        self.executor.begin(NOW_MS)
        self.session = self.executor.connect(NOW_MS)
        self.effects: list[list[bytes]] = []
        """All so far."""

    def call(self, *argv: bytes) -> bytes:
        """The bytes of a reply."""
        self.executor.handle(self.session, [list(argv)])
        out, self.session.out = self.session.out, []
        effects = self.leader.take_effects()
        self.effects += effects
        apply_effects(self.follower, effects)
        return b"".join(out)

    def send(self, line: str) -> str:
        """Run a line, show the reply."""
        return shown(self.call(*words(line)))

    def effects_of(self, line: str) -> list[list[bytes]]:
        """What a line leaves for the log."""
        before = len(self.effects)
        self.send(line)
        return self.effects[before:]

    def check(self) -> None:
        """Both hold the same."""
        assert contents_of(self.leader)[0] == contents_of(self.follower)[0]
