"""Celery with real workers on the delay log: what its users rely on, end to end.

A worker takes long to start, so one serves all tests that need nothing special of it; each of them
uses words of its own.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from delaylog.client import Client, NotFound, TooLate
from delaylog.client.child_broker import free_port
from delaylog.client.job_systems import register_kombu_transport
from delaylog.client.job_systems.celery_control import cancel_task
from delaylog.client.job_systems.tasks import id_tag
from tests.broker.conftest import Broker
from tests.client.job_systems.conftest import TIMEOUT_S, Bench, load_app, url_of
from tests.waiting import await_that

MakeApp = Callable[[str], tuple[Any, Bench]]
AHEAD_S = 3_600


class Shared(NamedTuple):
    """An application whose worker runs, and the SDK's view of its namespace."""

    jobs: Any
    bench: Bench
    client: Client


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def worker(bench: Bench, *more: str) -> AbstractContextManager[Any]:
    options = ("--concurrency", "1", "--prefetch-multiplier", "4", "--loglevel", "INFO", *more)
    return bench.worker("celery", "-A", "celery_app", "worker", *options)


@pytest.fixture(scope="module")
def shared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patches, Client(broker.url, namespace="shared") as client:
        jobs, bench = load_app("celery_app", url_of(broker, "shared"), folder, patches)
        with worker(bench, "--concurrency", "2"):
            jobs.run.delay("ready")
            bench.at_ms("ready")
            yield Shared(jobs, bench, client)


def test_a_countdown_and_an_eta_wait_in_the_broker(shared: Shared) -> None:
    """A worker gets the task when it is due, so it has nothing to hold and no ETA to wait for."""
    jobs, bench, client = shared
    begin = now_ms()
    jobs.run.apply_async(("countdown",), countdown=1)
    jobs.run.apply_async(("eta",), eta=datetime.now(UTC) + timedelta(seconds=1))
    jobs.show_eta.apply_async(countdown=1)
    far = jobs.run.apply_async(("far",), countdown=AHEAD_S)
    assert bench.at_ms("countdown") - begin >= 1_000
    assert bench.at_ms("eta") - begin >= 1_000
    bench.at_ms("eta:None")
    assert client.get("celery", far.id).state == "waiting"
    assert jobs.app.control.inspect(timeout=20, limit=1).scheduled().popitem()[1] == []


def test_an_eta_may_be_years_ahead(shared: Shared) -> None:
    jobs, _, client = shared
    eta = datetime(2036, 1, 1, 12, tzinfo=UTC)
    sent = jobs.never.apply_async(eta=eta)
    (info,) = client.browse("celery", tag="celery_app.never")
    assert (info.id, info.state) == (sent.id, "waiting")
    assert info.deliver_at_ms == int(eta.timestamp() * 1000)


def test_retries_wait_in_the_broker(shared: Shared) -> None:
    """With late acks the first try is still under lease when its retry is sent."""
    jobs, bench, _ = shared
    jobs.fail_once.delay()
    jobs.fail_once_late.delay()
    for name in ("try", "late"):
        assert bench.at_ms(f"{name}:1") - bench.at_ms(f"{name}:0") >= 1_000
        assert bench.names().count(f"{name}:0") == 1


@pytest.mark.parametrize(
    ("task", "reason"),
    [("grow", "413 too_large"), ("grow_late", "413 too_large"), ("too_far", "horizon")],
)
def test_a_task_whose_retry_is_refused_is_a_dead_letter_with_the_reason(
    shared: Shared, task: str, reason: str
) -> None:
    jobs, bench, client = shared
    getattr(jobs, task).delay(task)
    tag = f"celery_app.{task}"
    await_that(lambda: list(client.dead("celery", tag=tag)), bench.log, seconds=TIMEOUT_S)
    (letter,) = client.dead("celery", tag=tag)
    assert letter.reason is not None
    assert letter.reason.startswith("its retry was refused")
    assert reason in letter.reason
    assert bench.names().count(task) == 1
    client.replay("celery", [letter.id])
    await_that(lambda: bench.names().count(task) == 2, bench.log, seconds=TIMEOUT_S)


def test_each_send_of_one_task_id_runs(shared: Shared) -> None:
    """A frozen signature has an id; chords and `link` send one callback several times."""
    jobs, bench, _ = shared
    signature = jobs.run.si("frozen")
    signature.freeze()
    signature.apply_async(countdown=1)
    signature.apply_async(countdown=2)
    callback = jobs.run.si("linked")
    callback.freeze()
    for _ in range(3):
        jobs.run.apply_async(("link",), link=callback)
    jobs.run.apply_async(("one",), task_id="shared-id")
    jobs.show_eta.apply_async(task_id="shared-id")
    expected = {"frozen": 2, "linked": 3, "link": 3, "one": 1}
    await_that(
        lambda: {name: bench.names().count(name) for name in expected} == expected,
        lambda: f"{bench.names()}\n{bench.log()[-8000:]}",
        seconds=TIMEOUT_S,
    )


def test_a_task_that_outlives_its_lease_runs_once(shared: Shared) -> None:
    """The lease is 4 s; the worker extends it."""
    jobs, bench, _ = shared
    jobs.slow.delay("long", 9)
    bench.at_ms("long:end")
    time.sleep(1)
    assert [name for name in bench.names() if name.startswith("long")] == ["long:first", "long:end"]


def test_a_task_that_kills_its_child_becomes_a_dead_letter(shared: Shared) -> None:
    """It is tried as often as the topic says, with its backoff between."""
    jobs, bench, client = shared
    client.update_topic("celery", max_retry=1, backoff={"first_ms": 1_500, "jitter": 0})
    sent = jobs.kill_child.delay("killed-child")
    await_that(lambda: client.get("celery", sent.id).state == "dead", bench.log, seconds=TIMEOUT_S)
    first_ms, last_ms = [at_ms for name, at_ms in bench.ran() if name == "killed-child"]
    assert last_ms - first_ms >= 1_400
    assert [each.attempts for each in client.dead("celery", tag="celery_app.kill_child")] == [2]


def test_revoke_ends_a_task_that_waits_in_the_broker(shared: Shared) -> None:
    """Ids that no task has, or could have, do not matter."""
    jobs, bench, client = shared
    sent = jobs.run.apply_async(("revoked",), countdown=AHEAD_S)
    jobs.app.control.revoke([sent.id, "nothing", "no\nid"])
    await_that(lambda: client.get("celery", sent.id).state == "cancelled", bench.log)
    # The id of a message cannot be like this, so its tag names the task.
    odd = "~odd\nid"
    jobs.run.apply_async(("odd",), task_id=odd, countdown=AHEAD_S)
    (info,) = client.browse("celery", tag=id_tag(odd))
    jobs.app.control.revoke(odd)
    await_that(lambda: client.get("celery", info.id).state == "cancelled", bench.log)
    (answer,) = jobs.app.control.terminate(sent.id, reply=True, timeout=30, limit=1)
    assert [list(each) for each in answer.values()] == [["ok"]]


@pytest.mark.parametrize("headers", [{}, {"id": "odd", "timelimit": 5}])
def test_a_task_that_celery_cannot_begin_does_not_end_the_worker(
    shared: Shared, headers: dict[str, Any]
) -> None:
    """Another program has sent it. On other brokers the worker ends, each time it is started."""
    _, bench, client = shared
    client.update_topic("celery", max_retry=0)
    payload = {
        "body": json.dumps([["bad"], {}, {}]),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "celery_app.run", **headers},
        "properties": {"delivery_info": {}, "body_encoding": "utf-8"},
    }
    sent = client.send("celery", json.dumps(payload))
    await_that(lambda: client.get("celery", sent.id).state == "dead", bench.log, seconds=TIMEOUT_S)
    client.update_topic("celery", max_retry=10)


@pytest.mark.parametrize("content_type", ["application/x-python-serialize", "pickle"])
def test_a_pickle_of_another_program_is_not_loaded(shared: Shared, content_type: str) -> None:
    """Celery accepts JSON only, unless `accept_content` says otherwise."""
    _, bench, client = shared
    payload = {
        "body": base64.b64encode(pickle.dumps(Touch(bench.folder / "touched"))).decode(),
        "content-type": content_type,
        "content-encoding": "binary",
        "headers": {"task": "celery_app.run", "id": "pickled"},
        "properties": {"delivery_info": {}, "body_encoding": "base64"},
    }
    sent = client.send("celery", json.dumps(payload))
    ended = ("acked", "dead")
    await_that(lambda: client.get("celery", sent.id).state in ended, bench.log, seconds=TIMEOUT_S)
    assert not (bench.folder / "touched").exists()
    assert "Refusing to deserialize" in bench.log()


class Touch:
    """Whoever unpickles it creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_workers_answer_remote_control(shared: Shared) -> None:
    (answer,) = shared.jobs.app.control.ping(timeout=30, limit=1)
    assert list(answer.values()) == [{"ok": "pong"}]


def test_cancel_task_ends_it_in_the_broker(shared: Shared) -> None:
    jobs, bench, client = shared
    sent = jobs.run.apply_async(("cancelled",), countdown=AHEAD_S)
    assert cancel_task(jobs.app, sent.id).result == "done"
    assert client.get("celery", sent.id).state == "cancelled"
    with pytest.raises(NotFound):
        cancel_task(jobs.app, "nothing")
    ended = jobs.run.delay("ended")
    bench.at_ms("ended")
    await_that(lambda: client.get("celery", ended.id).state == "acked")
    with pytest.raises(TooLate):
        cancel_task(jobs.app, ended.id)


def test_a_cancelled_task_of_the_result_backend_rpc_stays_pending(
    url: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Such results go to the program that has sent the task, which only the task names."""
    register_kombu_transport()
    app = Celery("rpc", broker=url, backend="rpc://")
    sent = app.send_task("rpc.task", countdown=AHEAD_S)
    assert cancel_task(app, sent.id).result == "done"
    assert (sent.state, client.get("celery", sent.id).state) == ("PENDING", "cancelled")
    assert "which the result backend cannot say" in caplog.text
    app.close()


def test_a_send_while_the_broker_is_away_is_an_operational_error() -> None:
    register_kombu_transport()
    app = Celery("away", broker=f"delaylog://127.0.0.1:{free_port()}")
    for retry in (True, False):
        with pytest.raises(OperationalError, match="Connection refused"):
            app.send_task("away.task", retry=retry)
    app.close()


def test_a_task_that_expires_before_its_eta_does_not_run(shared: Shared) -> None:
    jobs, bench, _ = shared
    jobs.run.apply_async(("expired",), countdown=2, expires=1)
    jobs.run.apply_async(("after-expired",), countdown=3)
    bench.at_ms("after-expired")
    assert "expired" not in bench.names()


def test_purge_counts_what_waits_too(make_app: MakeApp) -> None:
    jobs, _ = make_app("celery_app")
    jobs.run.delay("a")
    jobs.run.apply_async(("b",), countdown=AHEAD_S)
    assert jobs.app.control.purge() == 2
    assert jobs.app.control.purge() == 0


def test_the_highest_priority_runs_first_and_a_stop_returns_the_rest(
    make_app: MakeApp, client: Client
) -> None:
    """One task runs and others are prefetched: these are returned, and not left under lease."""
    jobs, bench = make_app("celery_app")
    for priority in (1, 9, 5):
        jobs.slow.apply_async((f"p{priority}", 0), priority=priority)
    jobs.slow.apply_async(("last", 3), priority=0)
    for _ in range(3):
        jobs.slow.apply_async(("rest", 3), priority=0)
    with worker(bench):
        bench.at_ms("last:first")
    begun = [name for name in bench.names() if name.endswith("first")]
    assert begun == ["p9:first", "p5:first", "p1:first", "last:first"]
    counts = client.stats("celery").counts
    assert (counts.leased, counts.ready + counts.acked) == (0, 7)
    assert counts.ready >= 1


def test_a_task_that_was_revoked_does_not_run_after_a_restart(
    make_app: MakeApp, client: Client
) -> None:
    """What waits in the broker is cancelled there; what a worker had is kept by `--statedb`."""
    jobs, bench = make_app("celery_app")
    with worker(bench, "--statedb", "revoked"):
        jobs.slow.delay("running", 4)
        bench.at_ms("running:first")
        had = jobs.run.delay("revoked-in-worker")
        await_that(lambda: client.get("celery", had.id).state == "leased", bench.log)
        waits = jobs.run.apply_async(("revoked-in-broker",), countdown=8)
        jobs.app.control.revoke([had.id, waits.id])
        await_that(lambda: client.get("celery", waits.id).state == "cancelled", bench.log)
    assert client.get("celery", had.id).state in ("ready", "acked")
    jobs.run.apply_async(("after",), countdown=8)
    with worker(bench, "--statedb", "revoked"):
        bench.wait("running:first", "running:end", "after")
    assert client.get("celery", had.id).state == "acked"


def test_what_a_killed_worker_had_runs_again_and_a_worker_reconnects(
    make_app: MakeApp, broker: Broker
) -> None:
    """The lease of a late ack ends after 2 s. The broker is killed too, under the second worker."""
    jobs, bench = make_app("celery_app")
    jobs.slow.delay("killed", 3)
    with worker(bench) as first:
        bench.at_ms("killed:first")
        os.killpg(first.pid, signal.SIGKILL)
    with worker(bench):
        bench.wait("killed:first", "killed:again", "killed:end")
        broker.crash()
        time.sleep(2)
        broker.start()
        jobs.run.delay("reconnected")
        bench.at_ms("reconnected")


def test_a_task_with_late_acks_runs_again_if_the_broker_is_away_when_its_retry_is_sent(
    make_app: MakeApp, broker: Broker, client: Client, tmp_path: Path
) -> None:
    jobs, bench = make_app("celery_app")
    away = tmp_path / "away"
    sent = jobs.retry_while_away.delay(str(away))
    with worker(bench):
        bench.at_ms("away")
        broker.crash()
        away.touch()
        await_that(lambda: "OperationalError" in bench.log(), bench.log, seconds=TIMEOUT_S)
        broker.start()
        await_that(lambda: bench.names().count("away") >= 2, bench.log, seconds=TIMEOUT_S)
        await_that(
            lambda: client.get("celery", sent.id).state == "acked", bench.log, seconds=TIMEOUT_S
        )
    assert list(client.dead("celery")) == []
