"""`delaylog dump` of the frames of schedules, and of a checkpoint that has some."""

from __future__ import annotations

from pathlib import Path

from tests.broker.cli.test_dump import dump
from tests.broker.engine.host import HOUR, START_MS
from tests.broker.engine.schedules.rig import ScheduleHost


def test_frames_and_checkpoint(tmp_path: Path) -> None:
    """What fired and when it fires next, in words; no bodies."""
    folder = tmp_path / "folder"
    host = ScheduleHost(folder, START_MS + 1)
    host.put("hourly", b"secret", cron="0 * * * *")
    host.advance(HOUR)
    host.drop_one("hourly")
    host.put("hourly", b"secret", cron="0 * * * *")
    host.checkpoint()
    host.close()
    (log,) = (folder / "log").iterdir()
    frames = dump(log)
    assert "secret" not in str(frames)
    put, dropped, again = (line for line in frames if line["kind"] == "SCHEDULE")
    assert (put["put"], put["due"]) == ("hourly", "2021-05-03T01:00:00.000Z")
    assert dropped["drop"] == 1
    assert again["number"] == 2
    (fired,) = (line for line in frames if line["kind"] == "MULTI")
    sent, moved = fired["frames"]
    assert (sent["kind"], sent["n"]) == ("SEND", 1)
    assert moved["moved"] == [{"number": 1, "due": "2021-05-03T02:00:00.000Z"}]
    (checkpoint,) = dump(max(folder.glob("checkpoint-*")))
    assert [row[2] for row in checkpoint["schedules"]] == ["hourly"]
    assert "secret" not in str(checkpoint)
