"""`delaylog completion`: scripts that the shells themselves take, and what they offer."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.verbs import VERBS
from tests.programs import run_program
from tests.starts.warm import as_text, run_warm


@cache
def script(shell: str) -> str:
    """What the command prints."""
    done = as_text(run_warm("completion", shell))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def offered(*words: str, cwd: Path | None = None, url: str = "") -> set[str]:
    """What bash itself offers behind these words, the last of which is being typed."""
    assert shutil.which("bash"), "there is no bash; install it (Debian: apt-get install bash)"
    quoted = " ".join(f"'{word}'" for word in words)
    # As readline does it: the words, which of them, and the function that `complete` named.
    program = f"""{script("bash")}
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE="{" ".join(words)}"
COMP_POINT=${{#COMP_LINE}}
name=$(complete -p delaylog | sed 's/.*-F *\\([^ ]*\\).*/\\1/')
$name delaylog "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}" 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DELAYLOG_URL": url}
    done = run_program("bash", "--norc", input=program, timeout=120, cwd=cwd, env=environment)
    assert done.stderr == ""
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


def test_bash_completes_verbs() -> None:
    assert offered("delaylog", "") >= VERBS.keys()
    assert offered("delaylog", "re") == {
        *("receive", "reject", "reload", "replay", "reschedule", "restore", "resume"),
    }
    assert offered("delaylog", "groups", "") >= {"list", "make", "drop"}
    assert offered("delaylog", "cluster", "") >= {"status", "members", "doctor", "handover"}
    assert offered("delaylog", "cluster", "handover", "--t") == {"--to", "--token", "--token-file"}
    assert offered("delaylog", "completion", "") == {"bash", "zsh", "fish"}


def test_bash_completes_options() -> None:
    assert {"--json", "--delay", "--at", "--url"} <= offered("delaylog", "send", "t", "--")
    assert {"--data-dir", "--http", "--config"} <= offered("delaylog", "serve", "--")
    assert offered("delaylog", "backup", "--j") == {"--json"}
    assert {"--group", "--force", "--json"} <= offered("delaylog", "purge", "t", "--")
    assert {"--ephemeral", "--json"} <= offered("delaylog", "groups", "make", "t", "g", "--")
    assert "--group" in offered("delaylog", "list", "t", "--gr")


def test_bash_completes_folders(tmp_path: Path) -> None:
    """Where a folder belongs it offers folders, where a file does both."""
    (tmp_path / "data").mkdir()
    (tmp_path / "dump.txt").touch()
    assert offered("delaylog", "backup", "d", cwd=tmp_path) == {"data"}
    assert offered("delaylog", "dump", "d", cwd=tmp_path) >= {"dump.txt"}


def test_bash_completes_names(broker: Any, topic: str) -> None:
    """Of topics, groups and schedules the broker is asked, with the options of the line."""
    path = f"/v1/topics/{topic}-names"
    broker.call("PUT", path, {})
    broker.call("PUT", f"{path}/groups/mail", {})
    broker.call("PUT", f"{path}/schedules/digest", {"interval_ms": 60_000, "body": "x"})
    name, none = f"{topic}-names", "http://127.0.0.1:9"
    cases = [
        (("list", f"{topic}-n"), broker.url, {name}),
        (("groups", "drop", f"{topic}-n"), broker.url, {name}),
        (("groups", "drop", name, ""), broker.url, {"default", "mail"}),
        (("schedule", "show", name, "d"), broker.url, {"digest"}),
        (("list", name, "--url", broker.url, "--group", "m"), none, {"mail"}),
    ]
    for words, url, wanted in cases:
        # On a slow machine the time limit may end a try.
        tries = (offered("delaylog", *words, url=url) for _ in range(3))
        assert next(filter(None, tries), set()) == wanted, words
    assert "Europe/Berlin" in offered("delaylog", "schedule", "try", "t", "s", "--zone", "Europe/")


@pytest.mark.parametrize(
    "line", ["delaylog list ", "delaylog list 'x", "", "delaylog show t --token - "]
)
def test_no_name_is_offered_without_a_broker(line: str, topic: str) -> None:
    """Quietly, and soon."""
    environment = {**os.environ, "DELAYLOG_URL": "http://127.0.0.1:9", "DELAYLOG_LINE": line}
    for kind in ("topics", "groups", "schedules"):
        done = as_text(run_warm("completion", "--names", kind, environment=environment))
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", ""), kind


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_hold_every_verb_and_parse(shell: str) -> None:
    """The shell itself checks the script where it is installed."""
    text = script(shell)
    assert all(verb in text for verb in VERBS)
    if shutil.which(shell) is None:
        return
    done = run_program(shell, "-n", input=text, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell() -> None:
    done = as_text(run_warm("completion", "csh"))
    assert done.returncode == 2
    assert "'csh'" in done.stderr
