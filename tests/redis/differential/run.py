"""Compare a server with redis-server for some seconds, and print the first difference, made small.

    .venv/bin/python tests/redis/differential/run.py --family zsets --ours HOST:PORT --seconds 60

`--ours inprocess` takes our executor in this process, `--ours reference` a second redis-server
(which must agree with the first). redis-server is fetched where there is none.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.redis.differential.endpoints import Endpoint, SocketEndpoint, endpoint
from tests.redis.differential.programs import (
    ALONE,
    TOGETHER,
    family_forms,
    missing,
    search,
)
from tests.redis.differential.runner import Difference, Pair
from tests.redis_reference import Reference, reference

ROUND = 100
"""Programs before the seed moves on."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--family", default="mixed", choices=(*ALONE, *TOGETHER, "all"), help="mixed"
    )
    parser.add_argument("--ours", default="inprocess", help="HOST:PORT, inprocess, reference")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="just these commands: ZADD,ZRANGE")
    parser.add_argument("--skip", default="", help="not these commands")
    parser.add_argument(
        "--differences", type=int, default=1, help="go on without the command that differed"
    )
    options = parser.parse_args()
    families = (*ALONE, *TOGETHER) if options.family == "all" else (options.family,)
    with reference() as redis:
        if options.ours == "reference":
            with reference() as second:
                ours: Endpoint = SocketEndpoint("127.0.0.1", second.port)
                return _search(options, families, ours, redis)
        return _search(options, families, endpoint(options.ours), redis)


def _search(
    options: argparse.Namespace, families: tuple[str, ...], ours: Endpoint, redis: Reference
) -> int:
    pair = Pair(ours, SocketEndpoint("127.0.0.1", redis.port))
    found = sum(_family(options, family, pair) for family in families)
    return 1 if found else 0


def _family(options: argparse.Namespace, family: str, pair: Pair) -> int:
    only = set(options.only.upper().encode().split(b",")) - {b""}
    skip = set(options.skip.upper().encode().split(b",")) - {b""}
    chosen = family_forms(family)
    unknown = missing(pair, chosen)
    if unknown:
        print(f"{family}: not there yet: {b' '.join(sorted(unknown)).decode()}")
    skip |= unknown
    until, seeded, found = time.monotonic() + options.seconds, options.seed, 0
    runs = 0
    while time.monotonic() < until:
        left = [
            form
            for form in chosen
            if not skip & set(form.names) and (not only or only & set(form.names))
        ]
        if not left:
            print(f"{family}: no commands left")
            break
        try:
            search(
                pair,
                family,
                left,
                examples=ROUND,
                seeded=seeded,
                until=lambda: time.monotonic() > until + 20,
            )
            runs += ROUND
        except Difference as difference:
            found += 1
            print(f"{family}, --seed {seeded}, after some {runs} programs:\n{difference}\n")
            name = difference.argv[0].upper() if difference.argv else b""
            if found >= options.differences or not name:
                break
            skip.add(name)
        seeded += 1
    if not found:
        print(f"{family}: no difference in {runs} programs (--seed {options.seed})")
    sys.stdout.flush()
    return found


if __name__ == "__main__":
    sys.exit(main())
