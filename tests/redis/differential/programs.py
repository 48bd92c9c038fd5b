"""Programs of each family as strategies, and the search for a difference.

A program is a list of commands (with several sessions: of who sends what), so Hypothesis shrinks a
difference to the few commands that it needs. `search` runs one family on two servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from tests.redis.differential import scripts
from tests.redis.differential.grammar import Form, commands, forms
from tests.redis.differential.pools import POOLS
from tests.redis.differential.resp import Argv
from tests.redis.differential.runner import Difference, Pair

FOLDER = Path(__file__).parent / "families"

ALONE = (
    *("strings", "generic", "hashes", "lists", "sets", "zsets", "streams", "scripts", "server"),
    "mixed",
)
TOGETHER = ("transactions", "pubsub", "blocking")

PART = 12
PARTS = 5
SESSIONS = 3


def family_forms(family: str) -> list[Form]:
    """All forms of a family."""
    return forms(FOLDER / f"{family}.txt", {**POOLS, **scripts.pools()})


def pools_of_scripts() -> SearchStrategy[Argv]:
    """Commands of all families, called by scripts."""
    return scripts.calls(family_forms("mixed"))


def programs(family: str, chosen: Sequence[Form]) -> SearchStrategy[Any]:
    """Programs of these forms, for `Pair.run` or `Pair.run_sessions`."""
    argv = commands(chosen)
    if family in TOGETHER:
        return _long(st.tuples(st.integers(0, SESSIONS - 1), argv))
    if family == "scripts":
        argv = st.one_of(argv, scripts.calls(family_forms("mixed")))
    hello: Argv = (b"HELLO", b"3")
    return st.builds(
        lambda program, three: [hello, *program] if three else program, _long(argv), st.booleans()
    )


def _long(element: SearchStrategy[Any]) -> SearchStrategy[list[Any]]:
    """Some 25 elements; one list would have five of them by far too often."""
    parts = st.lists(element, max_size=PART)
    return st.tuples(*[parts] * PARTS).map(lambda lists: [one for some in lists for one in some])


def search(
    pair: Pair,
    family: str,
    chosen: Sequence[Form],
    *,
    examples: int,
    always_the_same: bool = False,
    seeded: int | None = None,
    small: bool = True,
) -> None:
    """Run so many programs; the first Difference, made small, is raised.

    They are drawn anew each time, or are `always_the_same`.
    """

    found: list[Difference] = []

    def one(program: Any) -> None:
        try:
            if family in TOGETHER:
                pair.run_sessions(program, SESSIONS)
            else:
                pair.run(program)
        except Difference as difference:
            found.append(difference)
            raise

    test: Any = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        derandomize=always_the_same,
        phases=(Phase.generate, Phase.shrink) if small else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(given(programs(family, chosen))(one))
    if seeded is not None:
        test = seed(seeded)(test)
    try:
        test()
    except Flaky:
        # What a server draws by lot does not come again; that it came once is enough.
        raise min(found, key=lambda difference: len(str(difference))) from None


def missing(pair: Pair, chosen: Sequence[Form]) -> set[bytes]:
    """Commands that our side does not know at all."""
    names = sorted({name for form in chosen for name in form.names} - {b"NOSUCH", b"nosuch"})
    session = pair.ours.session()
    unknown = {
        name
        for name in names
        if name not in (b"EXEC", b"MULTI", b"DISCARD", b"RESET")
        and session.send([(name, *[b"x"] * 40)] if name == b"HELLO" else [(name,)])[0].startswith(
            b"-ERR unknown command"
        )
    }
    session.close()
    return unknown
