"""Where `archive` may write: outside of the data folder, and not into another broker's archive."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from delaylog.storage.layout import hour_name
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs import archive, audit
from pyspark_delaylog.jobs.main import make_parser
from tests.broker.engine.host import HOUR, START_MS, Host

NAMES = [hour_name(START_MS // HOUR + k) for k in range(2)]


def ended(folder: Path, hours: int = 1, seed: int = 7) -> Path:
    """A broker's folder with ended hours."""
    host = Host(folder, seed=seed)
    host.configure(ended_keep_ms=1_000 * HOUR)
    for _ in range(hours):
        host.send(3)
        host.advance(10)
        host.ack(host.receive(100))
        host.advance(HOUR)
    host.advance(2 * HOUR)
    host.checkpoint(2)
    host.close()
    return folder


def run(folder: Path, output: Path, *more: str) -> dict[str, Any]:
    words = ["archive", str(folder), str(output), *more]
    return archive.run(None, make_parser().parse_args(words))


@pytest.mark.parametrize("job", [archive, audit])
@pytest.mark.parametrize("place", [".", "hours", "out/of/it", "../link/out"])
def test_a_job_does_not_write_into_the_data_folder(
    tmp_path: Path, written: list[str], job: Any, place: str
) -> None:
    """A broker owns its folder: it removes, copies and backs up what is there."""
    folder = ended(tmp_path / "data")
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
    one, out = ended(tmp_path / "one"), tmp_path / "out"
    run(one, out)
    other = ended(tmp_path / "other", seed=8)
    manifest = (out / archive.MANIFEST).read_bytes()
    said = f"{out} holds the archive of another broker, that of {one}: archive {other} into"
    for more in ([], ["--dry-run"]):
        with pytest.raises(JobError, match=said):
            run(other, out, *more)
    assert written == NAMES[:1]
    assert (out / archive.MANIFEST).read_bytes() == manifest
    shutil.rmtree(one)
    shutil.copytree(other, one)
    with pytest.raises(JobError, match="holds the archive of another broker"):
        run(one, out)


def test_a_broker_may_move(tmp_path: Path, written: list[str]) -> None:
    """A backup, or the folder of another member of the cluster, goes on with the archive."""
    one, out = ended(tmp_path / "one", hours=2), tmp_path / "out"
    run(one, out, "--end-hour", NAMES[1])
    moved = one.rename(tmp_path / "moved")
    assert run(moved, out)["archived_before"] == 1
    assert written == NAMES
    assert json.loads((out / archive.MANIFEST).read_text())["folder"] == str(moved)
