"""`delaylog config` and `delaylog topic`: settings, their values and where these come from."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.main import main
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.settings import OPTIONS

Shown = pytest.CaptureFixture[str]


def rows(capsys: Shown, *words: str) -> dict[str, dict[str, Any]]:
    assert main(["config", *words, "--json"]) == 0
    lines = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    return {row["setting"]: row for row in lines}


def test_every_setting_and_its_source(
    tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "delaylog.toml"
    file.write_text('http = "127.0.0.1:1"\nresp = "127.0.0.1:2"\n[limits]\nreceive_max = 5\n')
    monkeypatch.setenv("DELAYLOG_RESP", "127.0.0.1:3")
    monkeypatch.setenv("DELAYLOG_TOKEN", "s3cret")
    monkeypatch.setenv("DELAYLOG_URL", "http://user:s3cret@broker")  # pragma: allowlist secret
    found = rows(capsys, "--config", str(file), "--log-level", "debug")
    names = {option.name for option in OPTIONS} | {f"limits.{each.name}" for each in fields(Limits)}
    assert names <= found.keys()
    said = {
        name: (found[name]["value"], found[name]["source"])
        for name in ("http", "resp", "log-level", "fsync", "limits.receive_max", "DELAYLOG_TOKEN")
    }
    assert said == {
        "http": ("127.0.0.1:1", "file"),
        "resp": ("127.0.0.1:3", "environment"),
        "log-level": ("debug", "flag"),
        "fsync": ("always", "default"),
        "limits.receive_max": (5, "file"),
        "DELAYLOG_TOKEN": ("(set)", "environment"),
    }
    assert found["http"]["default"] == "127.0.0.1:8711"
    # An empty variable counts as absent, as for clients.
    for variable in ("DELAYLOG_TOKEN", "DELAYLOG_URL", "DELAYLOG_RESP"):
        monkeypatch.setenv(variable, "")
    found = rows(capsys, "--config", str(file))
    assert [found[name]["source"] for name in ("DELAYLOG_TOKEN", "DELAYLOG_URL", "resp")] == [
        *("default", "default", "file")
    ]
    assert main(["config"]) == 0
    table = capsys.readouterr().out
    assert "s3cret" not in table
    assert table.splitlines()[0].split() == ["setting", "value", "default", "source"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('http = "127.0.0.1:1"\n', None),
        ('fsync = "sometimes"\n', "fsync must be one of always, interval, not 'sometimes'"),
        (
            "speed = 1\n",
            "has an unknown key 'speed'; `delaylog config` lists the keys, with - for _",
        ),
        ('fsink = "x"\n', "has an unknown key 'fsink'; did you mean fsync?"),
        ("[limit]\n", "has an unknown key 'limit'; did you mean limits?"),
        ("[limits]\nreceive = 1\n", "there is no limit 'receive'; did you mean receive_max?"),
        ("[limits]\nspeed = 1\n", "there is no limit 'speed'; `delaylog config` lists them"),
        ("[limits]\nreceive_max = -1\n", "receive_max"),
        ("http = \n", "is not TOML"),
    ],
)
def test_a_file_is_judged_by_itself(
    text: str, wrong: str | None, tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYLOG_FSYNC", "always")
    file = tmp_path / "delaylog.toml"
    file.write_text(text)
    status = main(["config", "--check", str(file)])
    (line,) = capsys.readouterr().out.splitlines()
    assert status == (0 if wrong is None else 1)
    assert (wrong or f"{file} is valid") in line
    assert line.count(str(file)) == 1
    assert main(["config", "--check", str(file), "--json"]) == status
    assert json.loads(capsys.readouterr().out)["valid"] is (wrong is None)


def test_mistyped_variables(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads them, which nobody notices; variables of other programs are left alone."""
    for name in ("DELAYLOG_FSINK", "DELAYLOG_URI", "DELAYLOG_FSYNC", "DELAYLOG_PURPOSE", "FSYN"):
        monkeypatch.setenv(name, "always")
    monkeypatch.setenv("DELAYLOG_CLUSTER_SECRET", "s3cret")
    assert main(["config"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "delaylog: nothing reads the variable DELAYLOG_FSINK; did you mean DELAYLOG_FSYNC?",
        "delaylog: nothing reads the variable DELAYLOG_URI; did you mean DELAYLOG_URL?",
    ]


def test_settings_of_a_topic(broker: Any, topic: str, run: Any) -> None:
    """What is not named stays; a limit can be removed."""
    assert run("topic", "set", topic).returncode == 2
    assert run("topic", "show", topic).returncode == 1
    words = ("--max-retry", 5, "--backoff", "first=2s,max=1h", "--ttl", "1h", "--dead-expired")
    assert run("topic", "set", topic, *words, "--rate-limit", 100).returncode == 0
    done = run("topic", "set", topic, "--backoff", "factor=3", "--quota", "pending=9", "--json")
    settings = json.loads(done.stdout)["settings"]
    assert (settings["max_retry"], settings["ttl_ms"], settings["dead_expired"]) == (
        *(5, 3_600_000, True),
    )
    backoff = settings["backoff"]
    assert [backoff[name] for name in ("first_ms", "max_ms", "factor")] == [2_000, 3_600_000, 3]
    assert settings["rate_limit"]["per_second"] == 100
    assert settings["quota"]["pending"] == 9
    changed = ("--no-rate-limit", "--no-dead-expired", "--ttl", "never")
    lines = run("topic", "set", topic, *changed).stdout.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert (shown["ttl"], shown["max_retry"], shown["dead_expired"]) == ("never", "5", "no")
    assert "rate_limit" not in shown
    assert run("topic", "show", topic).stdout.splitlines() == lines
    assert run("topic", "drop", topic).stdout == f"{topic} dropped\n"
    assert run("topic", "show", topic).returncode == 1
