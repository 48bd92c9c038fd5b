"""The Celery application of eta_tasks.py, and the program that sends its tasks.

    python eta_app.py one 86400           # one task with an ETA in so many seconds
    python eta_app.py timed 100 5 0.05    # a hundred, the first due in 5 s, the next 50 ms later

BROKER_URL names the broker. The timed tasks write their lateness to LATE_FILE.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta

from celery import Celery

from delaylog.client.job_systems import register_kombu_transport

register_kombu_transport()
URL = os.environ["BROKER_URL"]
app = Celery("eta_app", broker=URL)
app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)
if URL.startswith("redis:"):
    # Beyond it, an hour by default, a task that waits in a worker is delivered to others too.
    app.conf.broker_transport_options = {"visibility_timeout": 7 * 86_400}


@app.task
def remind(order: int) -> None:
    """What waits."""


@app.task
def note_lateness(due_s: float) -> None:
    """Write how many milliseconds after its ETA this task began."""
    late_ms = (time.time() - due_s) * 1000
    file = os.open(os.environ["LATE_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{late_ms:.3f}\n".encode())
    finally:
        os.close(file)


def main() -> None:
    """Send what the arguments say."""
    now = datetime.now(UTC)
    if sys.argv[1] == "one":
        remind.apply_async((1_000_000,), eta=now + timedelta(seconds=float(sys.argv[2])))
        return
    count, first_s, apart_s = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    for number in range(count):
        due = now + timedelta(seconds=first_s + number * apart_s)
        note_lateness.apply_async((due.timestamp(),), eta=due)


if __name__ == "__main__":
    # Tasks are named after the module that the worker imports.
    from eta_app import main as run

    run()
