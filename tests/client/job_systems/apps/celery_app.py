"""A Celery application on the delay log, without a result backend."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from noting import note

from delaylog.client.job_systems import register_kombu_transport

register_kombu_transport()
app = Celery("celery_app", broker=os.environ["BROKER_URL"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lease_ms": 4_000, "timeout_s": 2},
    task_ignore_result=True,
    task_queue_max_priority=10,
    worker_hijack_root_logger=False,
)


@app.task
def run(word: str) -> None:
    note(word)


@app.task(bind=True)
def show_eta(self: Any) -> None:
    note(f"eta:{self.request.eta}")


@app.task(bind=True, max_retries=2)
def fail_once(self: Any) -> None:
    note(f"try:{self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=1)


@app.task(bind=True, max_retries=2, acks_late=True)
def fail_once_late(self: Any) -> None:
    note(f"late:{self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=1)


GROWN = "x" * 5_000_000


@app.task(bind=True)
def grow(self: Any, word: str) -> None:
    note(word)
    raise self.retry(args=(GROWN,), countdown=0)


@app.task(bind=True, acks_late=True)
def grow_late(self: Any, word: str) -> None:
    note(word)
    raise self.retry(args=(GROWN,), countdown=0)


@app.task(bind=True)
def too_far(self: Any, word: str) -> None:
    note(word)
    raise self.retry(countdown=11 * 366 * 86_400)


@app.task(bind=True, acks_late=True)
def retry_while_away(self: Any, file: str) -> None:
    note("away")
    if Path(file).exists():
        return
    while not Path(file).exists():
        time.sleep(0.1)
    raise self.retry(countdown=0)


@app.task(bind=True, acks_late=True)
def slow(self: Any, word: str, seconds: float) -> None:
    note(f"{word}:{'again' if self.request.delivery_info['redelivered'] else 'first'}")
    time.sleep(seconds)
    note(f"{word}:end")


@app.task(acks_late=True, reject_on_worker_lost=True)
def kill_child(word: str) -> None:
    note(word)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def never() -> None:
    raise AssertionError("it is due in ten years")
