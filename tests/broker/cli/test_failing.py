"""One line for an error, which says what to do about it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from delaylog.broker.cli.failures import fail, is_expected
from delaylog.broker.cli.main import main
from delaylog.client.errors import NotReached, api_error
from delaylog.storage.errors import DiskFullError
from tests.starts.warm import PROGRAM

Shown = pytest.CaptureFixture[str]


def refusal(status: int, code: str, detail: str) -> Exception:
    return api_error(status, {"code": code, "detail": detail})


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (NotReached("list: Connection refused"), "is a broker running there? `delaylog serve`"),
        (refusal(400, "bad_request", "…; with force, give ids"), "--by-id takes ids"),
        (refusal(401, "unauthorized", "a token is needed"), "--token-file or DELAYLOG_TOKEN_FILE"),
        (refusal(403, "forbidden", "'shop' lacks the right read on topic 't'"), "--allow …"),
        (refusal(404, "unknown", "there is no topic 't'"), "`delaylog topics` lists them"),
        (refusal(404, "unknown", "topic 't' has no group 'g'"), "`delaylog groups make t g`"),
        (refusal(404, "unknown", "topic 't' has no message 'm'"), "`delaylog list t --state all"),
        (refusal(404, "unknown", "topic 'a b' has no message 'm'"), "`delaylog list 'a b' --st"),
        (refusal(404, "unknown", "there is no job '7'"), "`delaylog jobs` lists them"),
        (
            refusal(503, "not_ready", "there is no leader at the moment"),
            "`delaylog cluster doctor`",
        ),
        (refusal(503, "not_ready", "this node is reloading its data"), "the broker's log says"),
        (refusal(413, "too_large", "a body has 5 MB"), "send less; `delaylog config` shows"),
        (refusal(429, "quota", "the topic has a quota"), "`delaylog topic show TOPIC` shows its"),
        (refusal(507, "disk_full", "the disk is full"), "make space on the broker's disk"),
        (DiskFullError("x has no space"), "make space on that disk"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "make space on that disk"),
    ],
    ids=str,
)
def test_errors_that_users_meet_say_what_to_do(error: Exception, hint: str, capsys: Shown) -> None:
    assert is_expected(error)
    assert fail(error, as_json=False) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("delaylog: ")
    before, _, after = line.partition("; ")
    assert before
    assert hint in after
    fail(error, as_json=True)
    assert hint not in json.loads(capsys.readouterr().err)["error"]["message"]


def test_a_held_broker_is_not_to_be_asked_again_soon(capsys: Shown) -> None:
    """Its own text says who ends the hold, which no waiting does."""
    fail(refusal(503, "held", "this broker is held: it delivers nothing"), as_json=False)
    assert "try again" not in capsys.readouterr().err


def test_an_error_of_the_system_has_no_number(capsys: Shown) -> None:
    fail(FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), as_json=False)
    assert capsys.readouterr().err == "delaylog: x: No such file or directory\n"


def test_a_full_disk_behind_standard_output() -> None:
    words = [PROGRAM, "completion", "bash"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == (
        "delaylog: No space left on device; make space on that disk, then run the command again\n"
    )
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "t", "x", "--dely", "2h"], "there is no option --dely; did you mean --delay? `d"),
        (["send", "t", "x", "--del", "2h"], "there is no option --del; did you mean --delay?"),
        (["send", "t", "x", "--in", "2h"], "there is no option --in; did you mean --delay?"),
        (["reschedule", "t", "x", "--in=2h"], "no option --in; did you mean --delay?"),
        (["list", "t", "--limit", "5"], "there is no option --limit; did you mean --max?"),
        (["list", "t", "--after", "-2h"], "no option --after; did you mean --due-from?"),
        (["list", "t", "--insecur"], "there is no option --insecur; `delaylog list --help`"),
        (["receive", "t", "--colour"], "there is no option --colour; `delaylog receive --help`"),
        (["send", "t", "pay", "the", "rent"], "too many words, from 'the' on; quote a text"),
        (["groups", "list", "t", "--urll=x"], "there is no option --urll; did you mean --url?"),
        (["groups", "list", "t", "x"], "`delaylog groups list --help` says more"),
    ],
)
def test_words_that_belong_nowhere(words: list[str], said: str, capsys: Shown) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_closed_streams_read_as_empty_and_discard(tmp_path: Path) -> None:
    """As a service without streams starts it: no traceback, and the status still counts."""

    def closed(*words: str) -> int:
        script = f'exec "{PROGRAM}" "$@" <&- >&- 2>&-'
        return subprocess.run(
            ["sh", "-c", script, "sh", *words], cwd=tmp_path, check=False
        ).returncode

    assert closed("config") == 0
    assert closed("config", "--check", "absent.toml") == 1
    assert closed("send", "t", "--url", "http://127.0.0.1:1") == 2, "an empty input sends nothing"
    program = f'exec "{PROGRAM}" send t --token - --url http://127.0.0.1:1 <&-'
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("delaylog: ")
