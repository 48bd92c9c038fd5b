"""`delaylog spark` becomes a job of pyspark_delaylog, or says what is missing."""

from __future__ import annotations

import sys

import pytest

from delaylog.broker.cli.main import main


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for words in (["audit", "/data", "/out"], ["--help"]):
        assert main(["spark", *words]) == 2
        assert "pip install 'delaylog[spark]'" in capsys.readouterr().err


def test_the_job_gets_its_words_and_nothing_from_the_folder_one_stands_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("os.execv", lambda program, words: called.append([program, *words]))
    main(["spark", "audit", "--on-corrupt", "skip", "/data", "--", "-x", "--json"])
    python = sys.executable
    job = ["-P", "-m", "pyspark_delaylog.jobs"]
    words = ["audit", "--on-corrupt", "skip", "/data", "--", "-x", "--json"]
    main(["spark", "--help"])
    assert called == [[python, python, *job, *words], [python, python, *job, "--help"]]
