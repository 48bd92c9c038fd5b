"""Actors of dramatiq on the delay log, without results."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import dramatiq
from noting import note

from delaylog.client.job_systems.dramatiq_broker import DelaylogBroker

address, _, namespace = os.environ["BROKER_URL"].rpartition("/")
dramatiq.set_broker(DelaylogBroker(address, namespace=namespace, lease=timedelta(seconds=5)))


@dramatiq.actor
def run(word: str) -> None:
    note(word)


@dramatiq.actor
def slow(word: str, seconds: float) -> None:
    note(f"{word}:begin")
    time.sleep(seconds)
    note(f"{word}:end")
