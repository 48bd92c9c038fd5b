"""`delaylog check`: the exit code, where output goes, and several files as one history."""

import gzip
from pathlib import Path

import orjson
import pytest

from delaylog.broker.history import HistoryRecorder, parse_rules, run_check


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A history in two files that breaks B alone."""
    paths = [tmp_path / "producer.jsonl", tmp_path / "consumer.jsonl"]
    with HistoryRecorder(paths[0]) as recorder:
        recorder.call("send", 0, 2, True, id="a", due=100)
        recorder.mark("end", 9_000)
    with HistoryRecorder(paths[1]) as recorder:
        recorder.call("deliver", 50, 99, True, id="a", now=98)
    return paths


def test_a_broken_history_exits_with_1(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_check(files, bound_ms=1_000, as_json=False) == 1
    out, err = capsys.readouterr()
    assert out.endswith("violated: B\n")
    assert err == ""


def test_a_history_that_holds_exits_with_0(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_check(files, as_json=True, rules="AC") == 0
    said = orjson.loads(capsys.readouterr().out)
    assert said["holds"] is True
    assert list(said["rules"]) == ["A", "C"]


def test_the_other_file_is_needed(files: list[Path]) -> None:
    assert run_check(files[1:], rules=parse_rules("J")) == 1


def test_a_packed_file(files: list[Path], tmp_path: Path) -> None:
    packed = tmp_path / "all.jsonl.gz"
    packed.write_bytes(gzip.compress(b"".join(path.read_bytes() for path in files)))
    assert run_check([packed], bound_ms=1_000) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"t0": 1}\n', "h.jsonl:1: field 'op': missing"),
        (b"\n\nnonsense", "h.jsonl:3: not JSON"),
    ],
)
def test_an_unreadable_line_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(content)
    assert run_check([path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("delaylog check: ")
    assert reason in err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check([tmp_path / "none.jsonl"]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_a_packed_file_that_is_cut_short(tmp_path: Path, files: list[Path]) -> None:
    packed = tmp_path / "cut.jsonl.gz"
    packed.write_bytes(gzip.compress(files[0].read_bytes())[:-9])
    assert run_check([packed]) == 2
    packed.write_bytes(b"no gzip at all")
    assert run_check([packed]) == 2


def test_wrong_questions(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check(files, bound_ms=-1) == 2
    assert run_check(files, rules="AX") == 2
    assert "no such rule: X (A to K)" in capsys.readouterr().err


def test_rules_are_read_from_a_list() -> None:
    assert parse_rules(" a, C,") == {"A", "C"}
    for text in ("", "A,L", "AB"):
        with pytest.raises(ValueError, match="no such rule"):
            parse_rules(text)
