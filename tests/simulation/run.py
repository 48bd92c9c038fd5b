"""Simulate seeds, or one seed with its trace.

    python tests/simulation/run.py SEEDS=300 [FIRST=0] [MINUTES=m] [STOP=1]
    python tests/simulation/run.py SEED=17          # its trace; a violation is shrunk
    python tests/simulation/run.py PLAN=FILE        # a stored plan

The plans of seeds that fail are stored in build/simulation: a plan stays the same when the draws
change. Ends with 1 if a promise was broken, and with 2 if a mandatory mark was never reached by a
hundred seeds or more.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.simulation.marks import MANDATORY  # noqa: E402 (it is a program of the tree)
from tests.simulation.plan import Plan, draw  # noqa: E402
from tests.simulation.shrink import shrunk  # noqa: E402
from tests.simulation.world import Result, run  # noqa: E402

STORE: Final = ROOT / "build/simulation"
KNOWN: Final = ("SEEDS", "SEED", "FIRST", "MINUTES", "STOP", "PLAN", "SHRINK")
MARKED_SEEDS_MIN: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments name."""
    given = dict(each.partition("=")[::2] for each in arguments if each.partition("=")[2])
    if unknown := given.keys() - set(KNOWN):
        print(
            f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(KNOWN)}", file=sys.stderr
        )
        return 2
    if "PLAN" in given:
        return _one(Plan(**json.loads(Path(given["PLAN"]).read_text())), shrinks=False)
    if "SEED" in given:
        return _one(draw(int(given["SEED"])), shrinks=given.get("SHRINK", "1") != "0")
    return _many(
        range(
            int(given.get("FIRST", 0)), int(given.get("FIRST", 0)) + int(given.get("SEEDS", 300))
        ),
        float(given.get("MINUTES", "inf")),
        stops=given.get("STOP", "0") != "0",
    )


def _many(seeds: range, minutes: float, *, stops: bool) -> int:
    began_s = time.monotonic()
    marks: Counter[str] = Counter()
    failed, done, given_up, simulated_s, calls = 0, 0, 0, 0.0, 0
    for seed in seeds:
        if time.monotonic() - began_s > 60 * minutes:
            break
        plan = draw(seed)
        result = run(plan)
        done += 1
        marks += result.marks
        simulated_s += result.simulated_s
        calls += result.calls
        given_up += result.is_given_up
        if result.violations:
            failed += 1
            print(f"seed {seed}: {_first(result)}\n  plan: {store(plan)}", flush=True)
            if stops:
                break
    took_s = time.monotonic() - began_s
    for name, count in sorted(marks.items()):
        print(f"{count:8}  {name}")
    missed = [name for name in MANDATORY if not marks[name]]
    for name in missed:
        print(f"   never  {name}")
    hours = simulated_s / 3600
    print(
        f"{done} seeds, {failed} failed, {given_up} given up, "
        f"{took_s / max(done, 1):.2f} s a seed, {calls} calls, "
        f"{hours / max(took_s / 60, 1e-9):,.0f} simulated hours a minute"
    )
    if failed:
        return 1
    return 2 if missed and done >= MARKED_SEEDS_MIN else 0


def _one(plan: Plan, *, shrinks: bool) -> int:
    result = run(plan)
    if result.violations and shrinks:
        print(f"violated: {_first(result)}\nshrinking …", flush=True)
        plan = shrunk(plan, result.kinds)
        result = run(plan)
    print(*result.trace, sep="\n")
    print(json.dumps(plan.as_dict()))
    print(f"trace {result.digest}, {result.steps} steps, {len(result.violations)} violations")
    if result.violations:
        print(f"plan: {store(plan)}")
    return 1 if result.violations else 0


def _first(result: Result) -> str:
    kind, text = result.violations[0]
    return f"{kind}: {text.strip()[-600:]}"


def store(plan: Plan) -> Path:
    """Keep a plan."""
    STORE.mkdir(parents=True, exist_ok=True)
    path = STORE / f"{plan.seed}.json"
    path.write_text(json.dumps(plan.as_dict(), indent=1))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
