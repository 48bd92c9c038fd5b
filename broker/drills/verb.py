"""`delaylog drill`: tests the failover of a cluster whose nodes it starts on this machine."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

import orjson

from delaylog.broker.cli.failures import DONE, WRONG, UsageError
from delaylog.broker.cli.parser import add_examples, add_json, complete_folders
from delaylog.broker.cli.progress import Progress
from delaylog.broker.drills.kinds import DRILLS
from delaylog.broker.drills.run import prepare, run_drill
from delaylog.broker.drills.verdict import result_text


def drill_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog drill`."""
    says = "; ".join(f"{name}: {text}" for name, text in DRILLS.items())
    parser.add_argument("name", choices=tuple(DRILLS), metavar="NAME", help=says)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="number (default 10)")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of the load and the pauses")
    keep = "work in this folder and keep it (default: a temporary one, kept if the drill fails)"
    complete_folders(parser.add_argument("--keep", metavar="DIR", help=keep))
    add_json(parser)
    add_examples(parser, "drill kill-leader --rounds 3", "drill handover --keep /tmp/drill")


def drill_command(args: argparse.Namespace) -> int:
    """Run a drill. Return 0 if every invariant held, else 1, and keep the folder then."""
    if args.rounds < 1:
        raise UsageError("--rounds must be 1 or more")
    prepare(args.name)
    seed = SystemRandom().randrange(2**32) if args.seed is None else args.seed
    folder = _folder(args)
    keep = True
    try:
        with Progress("drill", unit="rounds", quiet=args.json) as progress:
            result = run_drill(
                args.name, rounds=args.rounds, seed=seed, folder=folder, progress=progress
            )
        holds = bool(result["holds"])
        keep = not holds or args.keep is not None
        print(orjson.dumps(result).decode() if args.json else result_text(result))
    except KeyboardInterrupt:
        keep = args.keep is not None
        raise
    finally:
        if keep:
            print(f"seed {seed}; data, logs and history are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return DONE if holds else WRONG


def _folder(args: argparse.Namespace) -> Path:
    if args.keep is None:
        return Path(tempfile.mkdtemp(prefix=f"delaylog-drill-{args.name}-"))
    folder = Path(args.keep)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: give a new or an empty folder")
    return folder.resolve()
