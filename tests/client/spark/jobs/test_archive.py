"""The archive job: where it may write, and which hours the broker that holds them releases.

The folder is an engine's of years ago, served by a real broker; Spark's part, writing an hour, is
stood in for.
"""

from __future__ import annotations

import json
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.storage.layout import hour_name
from pyspark_delaylog.errors import JobError, RefusedError
from pyspark_delaylog.jobs import archive, audit
from pyspark_delaylog.jobs.main import make_parser
from pyspark_delaylog.segments.folder import read_folder
from tests.broker.conftest import Broker
from tests.broker.engine.host import HOUR, START_MS, Host
from tests.waiting import await_that

START_HOUR = START_MS // HOUR
NAMES = [hour_name(START_HOUR + k) for k in range(4)]
OFTEN = {
    "delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 100,
    "delaylog.broker.engine.upkeep.checkpoints.IDLE_MS": 50,
}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hours that were written, in order."""
    out: list[str] = []

    def write(_spark: Any, _options: Any, _output: Path, hours: list[int]) -> dict[str, Any]:
        out.extend(hour_name(hour) for hour in hours)
        return {hour_name(hour): {"rows": 1, "checksum": "0", "files": []} for hour in hours}

    monkeypatch.setattr(archive, "_archive", write)
    return out


def fill(folder: Path, *, living: bool = False, seed: int = 7) -> Path:
    """Three hours that have ended; with `living`, something is ready in the second."""
    host = Host(folder, seed=seed)
    host.engine.state.archive_hold = True
    for hour in range(3):
        host.send(5 + hour, delay=hour * HOUR + 1)
    if living:
        host.send(1, delay=HOUR + 1, topic="unread")
    for _ in range(3):
        host.advance(1)
        host.ack(host.receive(100))
        host.advance(HOUR - 1)
    host.advance(3 * HOUR)
    host.checkpoint(2)
    host.close()
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    made: list[Broker] = []

    def start(*options: str) -> Broker:
        broker = Broker(tmp_path, *options, constants=OFTEN)
        broker.start()
        made.append(broker)
        return broker

    yield start
    for broker in made:
        broker.kill()


def words(broker: Broker, output: Path, *more: str) -> Namespace:
    said = ["archive", str(broker.data_dir), str(output), "--endpoint", broker.url, "--release"]
    return make_parser().parse_args([*said, *more])


def released(broker: Broker) -> int:
    """Hours from the first on."""
    found = int(broker.call("GET", "/v1/archive").json["released_through_ms"]) // HOUR
    return max(found - START_HOUR, 0)


def await_gone(broker: Broker, name: str) -> None:
    until = time.monotonic() + 30
    while (broker.data_dir / "hours" / name).exists():
        assert time.monotonic() < until, f"{name} is still there"
        broker.post("/v1/topics/other/messages", {"body": "x", "delay_ms": 2 * HOUR})
        time.sleep(0.05)


def test_archived_hours_are_released_and_go(
    serve: Callable[..., Broker], tmp_path: Path, written: list[str]
) -> None:
    fill(tmp_path / "data")
    broker = serve("--archive-hold", "on")
    out = tmp_path / "out"
    some = archive.run(None, words(broker, out, "--end-hour", NAMES[1]))
    assert (some["hours"], some["released_through"]) == (1, NAMES[1])
    await_gone(broker, NAMES[0])
    # What is not archived is there yet.
    assert (broker.data_dir / "hours" / NAMES[1]).exists()
    # Whoever archives behind a gap releases nothing beyond it.
    gap = archive.run(None, words(broker, out, "--start-hour", NAMES[2]))
    assert (gap["hours"], gap["released_through"], released(broker)) == (1, None, 1)
    rest = archive.run(None, words(broker, out))
    assert (rest["hours"], rest["released_through"], released(broker)) == (1, NAMES[3], 3)
    assert written == [NAMES[0], NAMES[2], NAMES[1]]
    await_gone(broker, NAMES[2])
    again = archive.run(None, words(broker, out))
    assert (again["hours"], again["archived_before"], again["released_through"]) == (0, 3, None)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("with_broker", [True, False])
def test_an_hour_that_waits_is_named_with_the_reason(
    serve: Callable[..., Broker], tmp_path: Path, with_broker: bool
) -> None:
    """What lives in it, and for an hour that is not over the time from when it can be archived."""
    fill(tmp_path / "data", living=True)
    broker = serve("--archive-hold", "on")
    out = tmp_path / "out"
    args = words(broker, out, "--dry-run")
    args.release = with_broker
    found = archive.run(None, args)
    # The broker releases in order; without it, a gap is no obstacle.
    assert found["would_archive"] == ([NAMES[0]] if with_broker else [NAMES[0], NAMES[2]])
    why = "living messages of it are in topics unread (1)" if with_broker else "messages of it live"
    assert (found["next"]["hour"], found["next"]["from_ms"]) == (NAMES[1], None)
    assert found["next"]["why"].startswith(why)
    (got,) = broker.post("/v1/topics/unread/receive", {})["messages"]
    broker.post("/v1/topics/unread/ack", {"receipts": [got["receipt"]]})
    broker.post("/v1/topics/other/messages", {"body": "x", "delay_ms": HOUR})
    # The broker's time begins years ago: until it has come near, the hour is in the far tier.
    await_that(
        lambda: max(read_folder(str(broker.data_dir)).hours) > START_HOUR + 3,
        lambda: "the hour of the message never got a folder",
    )
    assert broker.stop() == 0
    broker.start()
    args = words(broker, out)
    args.release = with_broker
    found = archive.run(None, args)
    if with_broker:
        # It was acknowledged a moment ago.
        assert (found["hours"], found["next"]["hour"]) == (1, NAMES[1])
        assert "stay readable until 20" in found["next"]["why"]
        assert found["next"]["from_ms"] > time.time() * 1000 - HOUR
    else:
        assert found["hours"] == 3
        assert found["next"]["why"] == "an hour takes messages until an hour after its end"
        assert found["next"]["from_ms"] > time.time() * 1000


def test_what_fails_before_the_manifest_releases_nothing(
    serve: Callable[..., Broker],
    tmp_path: Path,
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what ended between the manifest and the release is made good."""
    fill(tmp_path / "data")
    broker = serve("--archive-hold", "on")
    out = tmp_path / "out"

    def cut(*_: Any) -> None:
        raise OSError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "write_manifest", cut)
        with pytest.raises(OSError, match="cut off"):
            archive.run(None, words(broker, out))
    assert released(broker) == 0
    with monkeypatch.context() as patch:
        patch.setattr(archive, "releasable", cut)
        with pytest.raises(OSError, match="cut off"):
            archive.run(None, words(broker, out))
    assert released(broker) == 0
    written.clear()
    done = archive.run(None, words(broker, out))
    assert (done["hours"], done["released_through"], released(broker)) == (0, NAMES[3], 3)
    assert written == []


def test_an_hour_that_may_change_is_neither_archived_nor_released(
    serve: Callable[..., Broker], tmp_path: Path, written: list[str]
) -> None:
    fill(tmp_path / "data", living=True)
    broker = serve("--archive-hold", "on")
    done = archive.run(None, words(broker, tmp_path / "out"))
    assert (written, done["released_through"]) == ([NAMES[0]], NAMES[1])
    assert released(broker) == 1


def test_an_hour_that_changed_since_is_archived_anew(
    serve: Callable[..., Broker], tmp_path: Path, written: list[str]
) -> None:
    """Or refused, where writing it would take the place of what was released before."""
    fill(tmp_path / "data")
    broker = serve("--archive-hold", "on")
    out = tmp_path / "out"
    archive.run(None, words(broker, out, "--end-hour", NAMES[1], "--dry-run"))
    assert written == []
    out.mkdir()
    stale = {"rows": 5, "checksum": "0", "files": [], "position": 7}
    manifest = {"format": 1, "hours": {NAMES[0]: stale}}
    archive.write_manifest(out, {**manifest, "released_through_ms": (START_HOUR + 1) * HOUR})
    with pytest.raises(JobError, match="archive into another folder"):
        archive.run(None, words(broker, out))
    archive.write_manifest(out, manifest)
    assert archive.run(None, words(broker, out))["released_through"] == NAMES[3]
    assert written == NAMES[:3]
    entry = json.loads((out / archive.MANIFEST).read_text())["hours"][NAMES[0]]
    assert entry["position"] > 7


def test_a_broker_that_does_not_hold_is_told_apart(
    serve: Callable[..., Broker], tmp_path: Path, written: list[str]
) -> None:
    fill(tmp_path / "data")
    broker = serve()
    with pytest.raises(JobError, match="--archive-hold on"):
        archive.run(None, words(broker, tmp_path / "out"))
    lone = make_parser().parse_args(["archive", "/data", "/out", "--release"])
    with pytest.raises(JobError, match="--release needs --endpoint"):
        archive.run(None, lone)
    assert written == []


def test_another_brokers_folder_releases_nothing(
    serve: Callable[..., Broker], tmp_path: Path, written: list[str]
) -> None:
    fill(tmp_path / "data")
    host = Host(tmp_path / "other")
    host.engine.state.archive_hold = True
    host.send(3, delay=1)
    host.advance(1)
    host.ack(host.receive())
    host.advance(3 * HOUR)
    host.send(1_000, delay=100 * HOUR)
    host.checkpoint()
    host.close()
    broker = serve("--archive-hold", "on")
    args = words(broker, tmp_path / "out")
    args.folder = str(tmp_path / "other")
    with pytest.raises(RefusedError, match=r"the copy 3:|changed after position"):
        archive.run(None, args)
    assert written == NAMES[:1]
    assert released(broker) == 0


def run(folder: Path, output: Path, *more: str) -> dict[str, Any]:
    words = ["archive", str(folder), str(output), *more]
    return archive.run(None, make_parser().parse_args(words))


@pytest.mark.parametrize("job", [archive, audit])
@pytest.mark.parametrize("place", [".", "hours", "out/of/it", "../link/out"])
def test_a_job_does_not_write_into_the_data_folder(
    tmp_path: Path, written: list[str], job: Any, place: str
) -> None:
    """A broker owns its folder: it removes, copies and backs up what is there."""
    folder = fill(tmp_path / "data")
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    name = job.__name__.rpartition(".")[2]
    args = make_parser().parse_args([name, str(folder), str(folder / place)])
    with pytest.raises(JobError, match=f"inside the data folder {folder}: give a folder outside"):
        job.run(None, args)
    assert written == []
    assert sorted(folder.rglob("*")) == before


def test_an_archive_is_of_one_broker(tmp_path: Path, written: list[str]) -> None:
    """Else an hour that both brokers have would count as archived, and be lost or released."""
    one, out = fill(tmp_path / "one"), tmp_path / "out"
    run(one, out)
    other = fill(tmp_path / "other", seed=8)
    manifest = (out / archive.MANIFEST).read_bytes()
    said = f"{out} holds the archive of another broker, that of {one}: archive {other} into"
    for more in ([], ["--dry-run"]):
        with pytest.raises(JobError, match=said):
            run(other, out, *more)
    assert written == NAMES[:3]
    assert (out / archive.MANIFEST).read_bytes() == manifest
    shutil.rmtree(one)
    shutil.copytree(other, one)
    with pytest.raises(JobError, match="holds the archive of another broker"):
        run(one, out)


def test_a_broker_may_move(tmp_path: Path, written: list[str]) -> None:
    """A backup, or the folder of another member of the cluster, goes on with the archive."""
    one, out = fill(tmp_path / "one"), tmp_path / "out"
    run(one, out, "--end-hour", NAMES[1])
    moved = one.rename(tmp_path / "moved")
    assert run(moved, out)["archived_before"] == 1
    assert written == NAMES[:3]
    assert json.loads((out / archive.MANIFEST).read_text())["folder"] == str(moved)
