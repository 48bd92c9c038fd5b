"""How fast the history checker is and what it keeps: writes a history, checks it, prints figures.

    python bench/history_check.py [--messages 1666667] [--keyed] [--bulk 1000]

Each message is sent, delivered and acked, one line a call, or one line a batch with `--bulk`; every
twentieth is delivered twice after a nack. Checking runs in a process of its own, so that its
resident size is the checker's alone.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from delaylog.broker.history import HistoryRecorder

_CHECK = """
import resource, sys, time
from delaylog.broker.history import check_files
begun, spent = time.perf_counter(), time.process_time()
report = check_files(sys.argv[1:])
seconds, spent = time.perf_counter() - begun, time.process_time() - spent
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(report.holds, report.items, report.ids, seconds, spent, peak)
"""


def main() -> None:
    """Write, check in a fresh process, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_666_667)
    parser.add_argument(
        "--keyed", action="store_true", help="give every message one of 10,000 keys"
    )
    parser.add_argument("--bulk", type=int, default=1, help="messages a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        begun = time.perf_counter()
        write_history(path, options.messages, keyed=options.keyed, bulk=options.bulk)
        write_seconds = time.perf_counter() - begun
        with path.open("rb") as lines:
            line_count = sum(1 for _ in lines)
        command = [sys.executable, "-c", _CHECK, str(path)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        baseline = subprocess.run(
            [*command[:3]], check=True, capture_output=True, text=True
        ).stdout.split()
        holds, items, ids, seconds, spent, peak = answer
        print(
            json.dumps(
                {
                    "holds": holds == "True",
                    "lines": line_count,
                    "calls": int(items),
                    "ids": int(ids),
                    "megabytes": path.stat().st_size >> 20,
                    "write_s": round(write_seconds, 1),
                    "check_s": round(float(seconds), 1),
                    "check_cpu_s": round(float(spent), 1),
                    "cpu_us_per_call": round(float(spent) / int(items) * 1e6, 2),
                    "peak_mib": int(peak) >> 20,
                    "bytes_per_id": (int(peak) - int(baseline[5])) // int(ids),
                }
            )
        )


def write_history(path: Path, messages: int, *, keyed: bool, bulk: int) -> None:
    """A history that holds: all clients' clocks agree and nothing goes wrong."""
    start = 1_770_000_000_000
    numbers = iter(range(messages))
    with HistoryRecorder(path, client="bench") as recorder:
        while batch := list(islice(numbers, bulk)):
            t = start + batch[0] * 20  # A key comes round every 200 s, long after its last lease.
            ids = [f"~{number:016x}" for number in batch]
            bodies = [f"{hash(number) & 0xFFFFFFFF:016x}" for number in batch]
            leases = [f"{number:016x}{number:016x}" for number in batch]
            keys = [f"key-{number % 10_000}" for number in batch] if keyed else None
            calls: list[tuple[str, int, dict[str, object]]] = [
                ("send", t, {"due": t + 1_000, "bodies": bodies, "keys": keys}),
                ("deliver", t + 1_001, {"now": t + 1_002, "attempt": 1, "lease_ms": 30_000,
                                        "leases": leases, "bodies": bodies}),
            ]  # fmt: skip
            if batch[0] % 20 == 0:
                calls.append(("nack", t + 1_004, {"leases": leases}))
                leases = [lease[:-1] + "x" for lease in leases]
                calls.append(
                    ("deliver", t + 1_007, {"now": t + 1_008, "attempt": 2, "lease_ms": 30_000,
                                            "leases": leases, "bodies": bodies})
                )  # fmt: skip
            calls.append(("ack", t + 1_010, {"leases": leases}))
            for op, t0, fields in calls:
                if bulk > 1:
                    recorder.call(op, t0, t0 + 2, True, ids=ids, **fields)  # type: ignore[arg-type]
                    continue
                single = {
                    {"bodies": "body", "leases": "lease", "keys": "key"}.get(name, name): (
                        value[0] if isinstance(value, list) else value
                    )
                    for name, value in fields.items()
                }
                recorder.call(op, t0, t0 + 2, True, id=ids[0], **single)  # type: ignore[arg-type]
        recorder.mark("end", start + messages * 20 + 60_000)


if __name__ == "__main__":
    main()
