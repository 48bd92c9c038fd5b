"""`delaylog backup` and `restore` as processes, beside a broker under load.

The load writes down when each call was answered; a backup must hold what was acknowledged before
it began and not settled before it ended, and a broker on it delivers that, once each. The limits
are small, so that the splitter, states, checkpoints and retention run all the time.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.backup.copies import Route
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.cli import main
from delaylog.broker.host.system.folder_lock import retention_suspended, suspended_retention
from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.checkpoint import KEPT
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from tests.programs import run_program
from tests.starts.tuned import BUSY
from tests.starts.warm import PROGRAM, as_text, run_warm
from tests.waiting import PATIENCE_S, await_that

FEW_HOURS = {**BUSY, "delaylog.broker.host.system.descriptors.OPEN_HOURS_SERVED": 8}
CHECKPOINTS = "checkpoint-[0-9]*[0-9]"
LOOK_S = 0.001
"""Between looks for what a copy makes on its way; a copy takes a hundred times as long."""
LEASE = {"wait_ms": 100, "lease_ms": 1_500}
FOLDER_NAMES = {"audit", "crash", "hold", "hours", "ids", "lock", "log", "ready", "reserve", "tick"}
TEXTS, MINUTES = "texts", "minutes"
"""The latter is there after the first minute."""


def delaylog(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return as_text(run_warm(*words))


def bounded(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command where the kernel refuses what passes a size, as it does on a full disk."""
    return run_program(
        PROGRAM,
        *words,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )


def report(*words: object) -> dict[str, Any]:
    """The JSON report of a command that worked."""
    done = delaylog(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    members: dict[str, Any] = json.loads(done.stdout)
    return members


def verified(folder: Path) -> Report:
    """What `delaylog verify` says, without a process for it."""
    found = Report()
    for _ in verify_folder(OsFileSystem(), str(folder), found):
        pass
    return found


def damage(folder: Path) -> list[Any]:
    """What `delaylog verify` finds wrong."""
    return verified(folder).damage


class Load:
    """Senders, consumers and cancels in threads, and when each call began and was answered."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self.tried: set[str] = set()
        self.sent: dict[str, float] = {}
        self.settling: dict[str, float] = {}
        self.settled: dict[str, float] = {}
        self.errors: list[BaseException] = []
        calls = (self._send, self._send, self._work, self._cancel)
        self._threads = [
            threading.Thread(target=self._run, args=(call, number))
            for number, call in enumerate(calls)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert self.errors == []

    def _run(self, call: Callable[[random.Random, str], None], number: int) -> None:
        rng = random.Random(number)
        at = 0
        try:
            while not self._stop.is_set():
                call(rng, f"{number}-{at}")
                at += 1
        except BaseException as error:
            self.errors.append(error)
            raise

    def _send(self, rng: random.Random, name: str) -> None:
        messages = [
            {
                "id": f"{name}-{k}",
                "body": "x" * rng.randrange(300),
                "delay_ms": rng.randrange(4_000),
            }
            for k in range(rng.randrange(1, 40))
        ]
        self.tried |= {message["id"] for message in messages}
        self._broker.post("/v1/topics/t/messages", messages)
        now = time.time()
        self.sent.update((message["id"], now) for message in messages)
        time.sleep(0.005)

    def _work(self, rng: random.Random, name: str) -> None:
        got = self._broker.post("/v1/topics/t/receive", LEASE | {"max": 50})["messages"]
        if not got:
            return
        done = [one for one in got if rng.random() < 0.7]
        if done:
            now = time.time()
            self.settling.update((one["id"], now) for one in done)
            self._broker.post("/v1/topics/t/ack", {"receipts": [one["receipt"] for one in done]})
            now = time.time()
            self.settled.update((one["id"], now) for one in done)
        again = [one["receipt"] for one in got if one not in done]
        if again:
            how = {"receipts": again, "delay_ms": rng.choice([0, 100, 2_000])}
            self._broker.post("/v1/topics/t/nack", how)

    def _cancel(self, rng: random.Random, name: str) -> None:
        time.sleep(0.02)
        if not self.sent:
            return
        one = rng.choice(list(self.sent))
        self.settling.setdefault(one, time.time())
        answer = self._broker.call("DELETE", f"/v1/topics/t/messages/{one}")
        if answer.status == 200:
            self.settled.setdefault(one, time.time())


def count_living(broker: Any) -> int:
    """Messages that have not ended, at one moment."""
    counts = broker.counts("t")
    return sum(counts[state] for state in ("waiting", "ready", "leased"))


def drain(broker: Any) -> list[str]:
    """Everything that lives, received and acked."""
    got: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while count_living(broker):
        assert time.monotonic() < until
        messages = broker.post("/v1/topics/t/receive", {"max": 5_000, "wait_ms": 500})["messages"]
        if messages:
            until = time.monotonic() + PATIENCE_S
            got += [one["id"] for one in messages]
            receipts = [one["receipt"] for one in messages]
            results = broker.post("/v1/topics/t/ack", {"receipts": receipts})["results"]
            assert set(results) == {"done"}
    return got


def newest_checkpoint(folder: Path) -> int:
    """Its number; they count from 1."""
    return max((int(path.name[11:]) for path in folder.glob(CHECKPOINTS)), default=0)


def await_checkpoints(broker: Any) -> None:
    """Until as many are taken as a broker keeps, so that none is left of those before.

    Each waits for some fifty turns of the I/O thread and of a loop that serves the load, and for
    a dozen syncs: on a busy machine for seconds.
    """
    for _ in range(KEPT):
        before = newest_checkpoint(broker.data_dir)
        await_that(
            lambda before=before: newest_checkpoint(broker.data_dir) > before,
            lambda: f"no new one: {broker.call('GET', '/metrics').body.decode()}",
        )


def test_backups_under_load(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    """Again and again: each one sound, and each one all that lived."""
    broker = start_broker(constants=FEW_HOURS)
    assert broker.call("PUT", "/v1/topics/t", {"max_retry": 1_000}).status in (200, 201)
    taken: list[tuple[Path, float, float]] = []
    with Load(broker) as load:
        time.sleep(0.5)
        for number in range(3):
            began = time.time()
            report("backup", broker.data_dir, tmp_path / f"b{number}")
            taken.append((tmp_path / f"b{number}", began, time.time()))
            # Checkpoints are taken all the time, and each backup is of another state.
            await_checkpoints(broker)
    broker.end_well()
    for backup, began, ended in taken:
        assert damage(backup) == []
        folder = tmp_path / f"{backup.name}-r"
        folder.mkdir()
        data_dir = str(folder / "data")
        route = Route(ReadOnlyFileSystem(), str(backup), OsFileSystem(), data_dir)
        restore_backup(route, now_ms=0, random=random.Random(1))
        other = start_broker("--release-hold", folder=folder)
        living = count_living(other)
        got = drain(other)
        other.end_well()
        assert len(got) == len(set(got)) == living
        must = {
            name
            for name, at in load.sent.items()
            if at < began and load.settling.get(name, ended) >= ended
        }
        assert must, "the load left something"
        assert must <= set(got), "everything acknowledged before and not settled is there"
        assert not {name for name, at in load.settled.items() if at < began} & set(got)
        assert set(got) <= load.tried


@pytest.fixture(autouse=True)
def _keep_the_handler() -> Iterator[None]:
    """`main` in this process takes SIGTERM for itself."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture(scope="module")
def large(start_broker: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker with some 60 MB to copy."""
    broker = start_broker(folder=tmp_path_factory.mktemp("large"))
    size = 1 << 20
    wire = {"v": 1, "n": 20, "body_size": size, "delay_ms": 3_600_000, "bodies": b"y" * (20 * size)}
    for _ in range(3):
        assert broker.bulk("/v1/topics/t/messages", wire).status == 200
    return broker


def killed_backup(source: Path, dest: Path, number: signal.Signals) -> int:
    """The status of a backup that was ended on its way; one that was quicker is made again."""
    partial = dest.with_name(f"{dest.name}.partial")
    for _ in range(10):
        words = [PROGRAM, "backup", str(source), str(dest)]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
            try:
                await_that(
                    lambda: retention_suspended(str(source)) or dest.exists(), pause_s=LOOK_S
                )
                await_that(lambda: (partial / "hours").is_dir() or dest.exists(), pause_s=LOOK_S)
                process.send_signal(number)
                process.communicate(timeout=60)
            finally:
                process.kill()
        if not dest.exists():
            return process.returncode
        shutil.rmtree(dest)
    raise AssertionError("each of ten backups was done before it could be killed")


def test_killed_backups_leave_nothing_behind(large: Any, tmp_path: Path) -> None:
    """Nothing under the name, nothing in the data folder; the next one takes the rest away."""
    dest, partial = tmp_path / "b", tmp_path / "b.partial"
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        status = killed_backup(large.data_dir, dest, number)
        if number == signal.SIGTERM:
            assert status == 130
            assert not partial.exists(), "it has cleaned up"
        else:
            assert status == -signal.SIGKILL
            assert partial.exists()
        # The broker looks by the same lock, which it has for a moment.
        await_that(
            lambda: not retention_suspended(str(large.data_dir)),
            lambda: "the broker may not remove again",
        )
    report("backup", large.data_dir, dest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]
    names = {path.name for path in large.data_dir.iterdir()}
    names = {name for name in names if not name.startswith("checkpoint-")}
    assert names - {MINUTES} == FOLDER_NAMES | {TEXTS}
    assert damage(dest) == []


def test_a_full_destination(large: Any, tmp_path: Path) -> None:
    """One line that says what is missing, status 1, and nothing left."""
    dest = tmp_path / "b"
    done = bounded("backup", large.data_dir, dest)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"delaylog: no space for {dest}.partial/")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    done = bounded("backup", large.data_dir, dest, "--json")
    assert json.loads(done.stderr)["error"]["code"] == "disk_full"
    report("backup", large.data_dir, dest)
    done = bounded("restore", dest, tmp_path / "r")
    assert done.returncode == 1
    assert "no space for" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_restore_that_was_killed(large: Any, tmp_path: Path) -> None:
    """The folder is not served until another restore has been through."""
    report("backup", large.data_dir, tmp_path / "b")
    folder = tmp_path / "r"
    with subprocess.Popen([PROGRAM, "restore", str(tmp_path / "b"), str(folder)]) as process:
        written = ("restoring/hours/*", "restoring/log/*")
        await_that(lambda: any(any(folder.glob(each)) for each in written), pause_s=LOOK_S)
        process.kill()
    served = delaylog("serve", "--data-dir", folder, "--http", "127.0.0.1:0")
    assert served.returncode == 2
    assert "not finished" in served.stderr
    report("restore", tmp_path / "b", folder)
    assert not (folder / "restoring").exists()
    assert damage(folder) == []


def test_where_a_backup_may_go(
    large: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Places that cannot be meant: status 2, and nothing is touched."""
    (tmp_path / "there").mkdir()
    letter = tmp_path / "mine.partial" / "log" / "letter"
    letter.parent.mkdir(parents=True)
    letter.write_text("keep me")
    data = large.data_dir
    for words, reason in (
        ((tmp_path / "nothing", tmp_path / "b"), "is not a data folder"),
        ((data, tmp_path / "there"), "exists"),
        ((data, tmp_path / "no" / "b"), "is not a folder"),
        ((data, data / "b"), "inside the data folder"),
        ((data, tmp_path / "mine"), "'log/letter'"),
    ):
        assert main(["backup", *map(str, words)]) == 2, words
        out, err = capsys.readouterr()
        assert out == ""
        assert reason in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.partial", "there"]
    assert letter.read_text() == "keep me"
    assert not (tmp_path / "mine.partial" / "lock").exists()


def test_where_a_restore_may_go(
    large: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An absent folder, or an empty one (the root of a volume); never one with something in it."""
    backup = tmp_path / "b"
    report("backup", large.data_dir, backup)
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter").write_text("keep me")
    for words, status, reason in (
        ((backup, full), 2, "not empty"),
        ((backup, large.data_dir), 2, "not empty"),
        ((backup, backup / "inside" / "it"), 2, "inside the backup"),
        ((full, tmp_path / "r"), 1, "is not a complete backup"),
        ((tmp_path / "nothing", tmp_path / "r"), 2, "is not a folder"),
    ):
        assert main(["restore", *map(str, words)]) == status, words
        out, err = capsys.readouterr()
        assert out == ""
        assert reason in err
    assert [path.name for path in full.iterdir()] == ["letter"]
    assert not (tmp_path / "r").exists()
    assert not (backup / "inside").exists()
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)
    members = report("restore", backup, volume)
    assert members["restored"] == str(volume)
    assert damage(volume) == []
    served = delaylog("serve", "--data-dir", backup, "--http", "127.0.0.1:0")
    assert served.returncode == 2
    assert "is a backup" in served.stderr


def test_two_backups_to_one_place(large: Any, tmp_path: Path) -> None:
    """One of them is told; neither spoils the other."""
    words = [PROGRAM, "backup", str(large.data_dir), str(tmp_path / "b")]
    pair = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(2)]
    told = [process.communicate(timeout=120)[1] for process in pair]
    statuses = sorted(process.returncode for process in pair)
    assert statuses == [0, 2], told
    assert damage(tmp_path / "b") == []


def test_verify_has_nothing_to_say_about_a_good_backup(
    start_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """A backup has neither an index of ids nor an audit log."""
    broker = start_broker()
    broker.call("POST", "/v1/topics/t/messages", {"body": "x", "id": "a", "delay_ms": 9_000_000})
    assert broker.stop() == 0
    report("backup", broker.data_dir, tmp_path / "b")
    found = verified(tmp_path / "b")
    assert (found.damage, found.notes) == ([], [])


def test_a_backup_that_may_only_be_read(large: Any, tmp_path: Path) -> None:
    """Backups lie on read-only media: nothing of them is opened for writing."""
    backup = tmp_path / "b"
    report("backup", large.data_dir, backup)
    if os.geteuid() == 0:
        # Root may write anything: what was changed is seen by its time.
        before = {path: path.stat().st_mtime_ns for path in backup.rglob("*")}
        report("restore", backup, tmp_path / "r")
        assert {path: path.stat().st_mtime_ns for path in backup.rglob("*")} == before
    else:
        for path in [backup, *backup.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        report("restore", backup, tmp_path / "r")
        for path in [backup, *backup.rglob("*")]:
            path.chmod(0o755)
    shutil.rmtree(tmp_path / "r")


def test_a_hold_is_shared_and_ends_with_its_owner(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert not retention_suspended(folder)
    with suspended_retention(folder), suspended_retention(folder):
        assert retention_suspended(folder)
    assert not retention_suspended(folder)
    with suspended_retention(folder):
        assert retention_suspended(folder)
