"""`delaylog spark` becomes a job of pyspark_delaylog, or says what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from delaylog.broker.cli.main import main
from tests.programs import run_program

PROGRAM = Path(sys.executable).parent / "delaylog"


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


def test_the_command_imports_no_spark() -> None:
    code = (
        "import sys; from delaylog.broker.cli import main, programs; "
        "from delaylog.broker.process import serve; "
        "print([name for name in sys.modules if name.startswith(('pyspark', 'pyarrow', 'pandas'))])"
    )
    found = run_program(sys.executable, "-P", "-c", code, check=True)
    assert found.stdout.strip() == "[]"
