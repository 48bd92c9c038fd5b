"""Sizes of a folder's parts: allocated bytes, measured again after a minute only."""

from __future__ import annotations

from pathlib import Path

from delaylog.broker.host.machine import RealMachine
from delaylog.broker.host.watch.metrics import EVERY_SECONDS, FolderSizes


class Machine(RealMachine):
    """A machine whose clock the test moves."""

    now_s = 100.0

    def steady_s(self) -> float:  # type: ignore[override]
        return self.now_s


async def test_parts_are_the_top_folders(tmp_path: Path) -> None:
    """A hole takes no space; files that are in no folder are one part."""
    (tmp_path / "hours" / "5").mkdir(parents=True)
    (tmp_path / "hours" / "5" / "rows").write_bytes(b"x" * 10_000)
    with (tmp_path / "hours" / "state").open("wb") as file:
        file.truncate(1 << 24)
    (tmp_path / "tick").write_bytes(b"x")
    machine = Machine()
    sizes = FolderSizes(machine)
    first = await sizes.of(str(tmp_path))
    assert set(first) == {"hours", "files"}
    assert 10_000 <= first["hours"] < 1 << 20
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "1").write_bytes(b"x")
    machine.now_s += EVERY_SECONDS
    assert await sizes.of(str(tmp_path)) is first
    machine.now_s += 0.001
    # A scrape does not wait for the size of each file: the next one has the new sizes.
    assert await sizes.of(str(tmp_path)) is first
    assert sizes.measuring is not None
    await sizes.measuring
    assert "log" in await sizes.of(str(tmp_path))
