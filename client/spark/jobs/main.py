"""The command line of `delaylog spark`, and the program for spark-submit.

Exit statuses are those of the `delaylog` command: 0 success, 1 failure, 2 invalid arguments. The
last line of standard output is a JSON object with the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.errors import DateTimeException, PySparkException

from pyspark_delaylog.errors import DelaylogError
from pyspark_delaylog.jobs import archive, audit, backfill
from pyspark_delaylog.jobs.session import add_session_arguments, open_session

_RAISED: Final = "USER_RAISED_EXCEPTION"
"""What Spark calls an error of an SQL expression, as those of `backfill`."""
JOBS = {"backfill": backfill, "audit": audit, "archive": archive}
_OURS: Final = re.compile(r"^pyspark_delaylog\.(?:segments\.)?errors\.\w+: (.*)$", re.MULTILINE)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all jobs."""
    parser = argparse.ArgumentParser(
        prog="delaylog spark", description="Jobs of the delay log broker on Apache Spark."
    )
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, module in JOBS.items():
        job = jobs.add_parser(name, help=module.HELP, description=module.__doc__)
        job.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(job)
        add_session_arguments(job)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job; returns the exit status."""
    args = make_parser().parse_args(argv)
    job = JOBS[args.job]
    try:
        with open_session(args) as spark:
            done = job.run(spark, args)
    except (DelaylogError, PySparkException) as error:
        said = str(error) if isinstance(error, DelaylogError) else _in_a_line(error)
        if said is None:
            raise
        print(f"delaylog spark {args.job}: {said}", file=sys.stderr)
        return 1
    print(json.dumps(done), flush=True)
    return 0


def _in_a_line(error: PySparkException) -> str | None:
    """An error of the connector or of the data, without Spark's traceback; None for another one."""
    ours = _OURS.findall(str(error))
    if ours:
        return str(ours[-1])
    if error.getCondition() == _RAISED:
        return (error.getMessageParameters() or {}).get("errorMessage")
    return str(error).partition("\n")[0] if isinstance(error, DateTimeException) else None


if __name__ == "__main__":
    sys.exit(main())
