"""Configured files are read again on request and after a change, and faults change nothing.

Method: a source that notes what it reads, real files, and looks that follow each other quickly.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.watch import reloader as reloading
from delaylog.broker.host.watch.reloader import Reloader, ReloadError, Use
from tests.waiting import until


class Source:
    """One file, and the content in use."""

    def __init__(self, path: Path, name: str = "words") -> None:
        self.path, self.name = path, name
        path.write_text("first")
        self.used = "first"
        self.reads = 0

    def read(self) -> Use:
        self.reads += 1
        try:
            text = self.path.read_text()
        except OSError as error:
            raise ConfigError(f"cannot read {self.path.name}: {error.strerror}") from None
        if text == "bad":
            raise ConfigError(f"{self.path.name} is bad")
        if text == "bug":
            raise RuntimeError("a bug")

        async def use() -> None:
            self.used = text

        return use

    def replace(self, text: str) -> None:
        """Write another file and rename it, as careful programs do."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "words")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.02)


def reloader_of(*sources: Source) -> Reloader:
    made = Reloader(REAL)
    for each in sources:
        made.register(each.name, [str(each.path)], each.read)
    return made


async def test_on_request(source: Source) -> None:
    reloader = reloader_of(source)
    assert reloader.counts == {("words", "ok"): 0, ("words", "failed"): 0}
    source.path.write_text("second")
    assert await reloader.reload() == ["words"]
    assert (source.used, reloader.counts["words", "ok"]) == ("second", 1)
    assert await Reloader(REAL).reload() == []


async def test_a_fault_of_one_does_not_keep_others(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All are tried; the error names all faults. An unexpected one is logged with its place."""
    bad, bug = Source(tmp_path / "a", "a"), Source(tmp_path / "b", "b")
    reloader = reloader_of(bad, bug, source)
    for each, text in ((bad, "bad"), (bug, "bug"), (source, "second")):
        each.path.write_text(text)
    with pytest.raises(ReloadError) as refused:
        await reloader.reload()
    assert str(refused.value) == "a stays as it was: a is bad; b stays as it was: a bug"
    assert (bad.used, bug.used, source.used) == ("first", "first", "second")
    assert [reloader.counts[name, "failed"] for name in ("a", "b", "words")] == [1, 1, 0]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [bool(record.exc_info) for record in errors] == [False, True]


async def test_after_a_change(source: Source) -> None:
    """Written, replaced, touched, removed: each is read once."""
    reloader = reloader_of(source)
    reloader.start()
    await asyncio.sleep(0.1)
    assert source.reads == 0
    source.path.write_text("second")
    await until(lambda: source.used == "second")
    source.replace("third")
    await until(lambda: source.used == "third")
    source.replace("bad")
    await until(lambda: reloader.counts["words", "failed"] == 1)
    assert reloader.failing == {"words": 1}
    await asyncio.sleep(0.1)
    assert (source.used, source.reads) == ("third", 3)
    source.path.unlink()
    await until(lambda: reloader.counts["words", "failed"] == 2)
    source.replace("fourth")
    await until(lambda: source.used == "fourth")
    assert reloader.failing == {"words": 0}
    os.utime(source.path, ns=(1, 1))
    await until(lambda: source.reads == 6)
    await asyncio.sleep(0.1)
    assert source.reads == 6
    reloader.stop()


async def test_a_change_is_read_when_it_is_complete(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes between two looks is not read yet."""
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 1.0)
    reloader = reloader_of(source)
    reloader.start()
    for number in range(20):
        source.path.write_text("bad" + "." * number)
        await asyncio.sleep(0.15)
    assert source.reads == 0
    source.path.write_text("whole")
    await until(lambda: source.used == "whole")
    assert source.reads == 1
    reloader.stop()


async def test_what_was_asked_for_is_not_read_twice(source: Source) -> None:
    reloader = reloader_of(source)
    reloader.start()
    source.path.write_text("second")
    reloader.reload_soon()
    await until(lambda: source.used == "second")
    await asyncio.sleep(0.1)
    assert source.reads == 1
    reloader.stop()


async def test_a_signal_with_bad_files_is_logged(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    reloader = reloader_of(source)
    source.path.write_text("bad")
    reloader.reload_soon()
    await until(lambda: reloader.counts["words", "failed"])
    assert "words stays as it was: words is bad" in caplog.messages


async def test_the_watch_outlives_any_error(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One thread that could not be started, and one content that could not be put into use."""
    reloader = reloader_of(source)
    look, faults = reloader._look, [RuntimeError("can't start new thread")]

    async def looked(one: object) -> object:
        if faults:
            raise faults.pop()
        return await look(one)  # type: ignore[arg-type]

    monkeypatch.setattr(reloader, "_look", looked)
    read = source.read

    def read_badly() -> Use:
        use = read()

        async def fail() -> None:
            raise RuntimeError("not put into use")

        return fail if source.path.read_text() == "second" else use

    reloader._sources[0].read = read_badly
    reloader.start()
    try:
        await until(lambda: "can't start new thread" in caplog.text)
        source.replace("second")
        await until(lambda: "not put into use" in caplog.text)
        assert reloader.failing == {"words": 1}
        source.replace("third")
        await until(lambda: source.used == "third")
        assert reloader.failing == {"words": 0}
    finally:
        reloader.stop()
