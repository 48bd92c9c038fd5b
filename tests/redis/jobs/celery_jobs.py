"""A Celery application with broker and results on Redis."""

from __future__ import annotations

import os
import time
from typing import Any

import ran
import where
from celery import Celery

url = ";".join(f"sentinel://{host}:{port}" for host, port in where.SENTINELS) or where.URL
app = Celery("celery_jobs", broker=url, backend=url)
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
app.conf.beat_schedule = {"tick": {"task": "celery_jobs.add", "schedule": 1.0, "args": (7, 7)}}
if where.SENTINELS:
    app.conf.broker_transport_options = {"master_name": where.MASTER}
    app.conf.result_backend_transport_options = {"master_name": where.MASTER}
if "VISIBILITY_TIMEOUT_S" in os.environ:
    app.conf.broker_transport_options = {
        "visibility_timeout": int(os.environ["VISIBILITY_TIMEOUT_S"]),
        # Look for tasks of dead workers at every occasion, not at every tenth.
        "unacked_restore_throttle": 1,
    }


@app.task
def add(a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=2)
def fail_once(self: Any) -> str:
    ran.note("fail_once")
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    return "second try"


@app.task(acks_late=True)
def slow(seconds: float) -> str:
    ran.note("slow")
    time.sleep(seconds)
    return "whole"
