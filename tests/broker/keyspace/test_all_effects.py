"""What is logged brings about the same elsewhere, whatever clients do to each other, and when.

Method: programs of the differential tests (all families, scripts, MULTI and WATCH, commands that
wait) by three clients while time goes on, and their recorded sessions; after each command a
keyspace that applied the effects holds what the leader's holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaylog.broker.keyspace.effects import apply_effects
from delaylog.broker.keyspace.running.session import Session
from tests.broker.keyspace.dumps.test_dumps import WHOLE
from tests.broker.keyspace.effects import NOW_MS, Pair
from tests.effort import tries
from tests.redis.differential.grammar import Form, commands
from tests.redis.differential.programs import family_forms, pools_of_scripts
from tests.redis.differential.transcript import FOLDER, sections

CLIENTS = 3
TRAPS = sorted(FOLDER.glob("*.txt"))
FAMILIES = {"mixed": 2, "transactions": 3, "blocking": 3}
"""And how often."""
STEPS_MS = (0, 0, 0, 1, 7, 150_000, 2_000_000)
"""Keys of the programs live for 100 s, 1,000 s or a day."""


def _words() -> Any:
    forms: list[Form] = [
        form for name, times in FAMILIES.items() for form in family_forms(name) * times
    ]
    argv = commands(forms)
    return st.one_of(argv, argv, argv, pools_of_scripts())


STEP = st.tuples(st.integers(0, CLIENTS - 1), st.sampled_from(STEPS_MS), _words())


class Group(Pair):
    """Several clients of one leader."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.sessions = [self.executor.connect(NOW_MS) for _ in range(5)]

    def step(self, session: Session, argv: list[bytes]) -> None:
        """One command in a turn of its own, unless the client waits for something."""
        if session.blocked is not None:
            return
        self.executor.begin(self.now_ms)
        self.executor.handle(session, [argv])
        session.out.clear()
        self.finish()

    def finish(self) -> None:
        """The turn ends: what it logged is applied."""
        self.executor.waits.end_late()
        effects = self.leader.take_effects()
        self.effects += effects
        apply_effects(self.follower, effects)

    def dumped(self, argv: list[bytes]) -> list[bytes]:
        """`@DUMP key` stands for a dump of the real server, of any kind of value."""
        dump = bytes.fromhex(WHOLE[len(self.effects) % len(WHOLE)][1])
        return [dump if word.startswith(b"@DUMP ") else word for word in argv]


@settings(
    max_examples=tries(60), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.lists(STEP, max_size=60))
def test_effects(program: list[tuple[int, int, tuple[bytes, ...]]]) -> None:
    group = Group()
    for who, step_ms, argv in program:
        group.now_ms += step_ms
        group.step(group.sessions[who], group.dumped(list(argv)))
        group.check()
    group.leader.expire_due(group.now_ms)
    group.finish()
    group.check()


@pytest.mark.parametrize("path", TRAPS, ids=lambda path: path.stem)
def test_effects_of_recorded_sessions(path: Path) -> None:
    for section in sections(path):
        group = Group()
        for line in section.lines:
            group.now_ms += line.sleep_ms
            if line.argv:
                group.step(group.sessions[line.who], group.dumped(list(line.argv)))
            else:
                group.finish()
            group.check()


def test_random_picks_are_logged_as_picked() -> None:
    pair = Pair()
    pair.send("SADD s " + " ".join(map(str, range(100))))
    for _ in range(20):
        pair.send("SPOP s")
        pair.send("SPOP s 2")
        pair.check()
