"""docs/job-systems/move-celery.md: its steps, with a redis-server, real workers and a broker."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from delaylog.client import Client
from tests.broker.conftest import Broker
from tests.client.job_systems.conftest import ROOT, TIMEOUT_S, Bench, url_of
from tests.programs import run_program
from tests.redis_reference import reference
from tests.waiting import await_that

PAGE = (ROOT / "docs" / "job-systems" / "move-celery.md").read_text()
OLD_URL, NEW_URL = "redis://127.0.0.1:6379/0", "delaylog://127.0.0.1:8711"
AHEAD_S = 3_600


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Steps:
    """The page for one pair of brokers: its application, before and after, and its commands."""

    def __init__(self, bench: Bench, old_url: str, new_url: str) -> None:
        self.bench = bench
        self._urls = {OLD_URL: old_url, NEW_URL: new_url}
        self._shop = bench.folder / "shop.py"

    def change_application(self, number: int) -> None:
        """Save the first or the second listing as the page shows it."""
        self._shop.write_text(self._placed(blocks("python")[number]))

    def send(self, order: int, **options: Any) -> str:
        """Send a task as any program of the application does; returns its id."""
        options["task_id"] = str(uuid4())
        steps = "shop.app.conf.broker_transport_options = {'priority_steps': list(range(10))}"
        call = f"import shop; {steps}; shop.remind.apply_async(({order},), **{options!r})"
        with self.bench.worker("python", "-c", call) as process:
            assert process.wait(TIMEOUT_S) == 0, self.bench.log()
        return str(options["task_id"])

    def save_program(self) -> None:
        """Save the listing that moves tasks."""
        (self.bench.folder / "move.py").write_text(self._placed(blocks("python")[2]))

    def command(self, beginning: str) -> list[str]:
        """The words of the command of the page that begins like this."""
        (line,) = [
            line
            for block in blocks("sh")
            for line in block.splitlines()
            if line.startswith(beginning)
        ]
        return shlex.split(self._placed(line))

    def run(self, beginning: str, *more: str) -> str:
        """What a command of the page prints. In the log of the workers, what these say meanwhile
        would come between its words.
        """
        done = run_program(
            *self.bench.command(*self.command(beginning), *more),
            cwd=self.bench.folder,
            env=self.bench.child_environment(),
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.bench.log()
        return done.stdout

    def _placed(self, text: str) -> str:
        for shown, real in self._urls.items():
            text = text.replace(shown, real)
        return text


def lose(server: redis.Redis, key: str) -> None:
    """Leave the task of a list as a worker that was killed an hour ago has left it."""
    payload = json.loads(server.rpop(key))
    info = payload["properties"]["delivery_info"]
    had = json.dumps([payload, info["exchange"], info["routing_key"]])
    server.hset("unacked", "lost", had)
    server.zadd("unacked_index", {"lost": time.time() - 3_600})


def test_the_steps_move_an_application_and_what_waits(
    broker: Broker, namespace: str, client: Client, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, tmp_path, dict)

    def done(task_id: str) -> bool:
        return f"[{task_id}] succeeded" in bench.log()

    with reference() as old, redis.Redis(port=old.port) as server:
        steps = Steps(bench, f"redis://127.0.0.1:{old.port}/0", url_of(broker, namespace))
        steps.change_application(0)
        with bench.worker(*steps.command("celery -A shop worker"), "--concurrency", "1"):
            due_ms = time.time() * 1000 + AHEAD_S * 1000
            far = steps.send(1, countdown=AHEAD_S)
            await_that(lambda: server.hlen("unacked") == 1, bench.log, seconds=TIMEOUT_S)
        assert (server.hlen("unacked"), server.llen("celery")) == (0, 1)
        ready = steps.send(2)
        routed = [steps.send(4, queue="mail", priority=priority) for priority in (0, 1, 9)]
        lose(server, "mail\x06\x161")

        steps.change_application(1)
        with bench.worker(*steps.command("celery -A shop worker"), "--concurrency", "1"):
            new = steps.send(3)
            steps.save_program()
            assert steps.run("python move.py") == blocks("text")[0]
            await_that(lambda: done(ready) and done(new), bench.log, seconds=TIMEOUT_S)
        assert server.hlen("unacked") == 0
        assert list(server.scan_iter(_type="list")) == []
    assert [(client.get("mail", each).state, each) for each in routed] == [
        ("ready", each) for each in routed
    ]
    assert [each.id for each in client.receive("mail", max=3)] == routed[::-1]
    info = client.get("celery", far)
    assert (info.state, info.tags) == ("waiting", ("shop.remind",))
    assert due_ms <= info.deliver_at_ms <= due_ms + TIMEOUT_S * 1000
    assert not done(far)
    place = ("--url", broker.url, "--namespace", namespace)
    steps.run("delaylog stats", *place)
    assert steps.run("delaylog list", *place).splitlines()[-1].startswith(far)
