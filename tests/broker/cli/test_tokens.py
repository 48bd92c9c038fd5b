"""`delaylog init` and `delaylog token`: a token is printed once, alone on standard output."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from delaylog.broker.cli.main import main
from delaylog.broker.engine.access.token_form import is_token
from tests.broker.conftest import Broker, Secured

DAY_MS = 86_400_000
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command against the module's broker, as its administrator."""
    file = tmp_path / "admin.token"
    file.touch(mode=0o600)
    file.write_text(secured.admin)

    def call(*words: str) -> tuple[int, str, str]:
        options = ["--url", secured.broker.url, "--token-file", str(file)]
        try:
            status = main(["token", *words, *(options if words[0] != "generate" else [])])
        except SystemExit as error:
            status = int(str(error.code))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def test_a_token_from_beginning_to_end(secured: Secured, run: Run) -> None:
    grants = ("--allow", "producer:cli.*", "--allow", "receive:cli.a:workers")
    status, out, err = run("create", "life", *grants, "--expires", "+90d", "--calls-per-s", "500")
    token = out.removesuffix("\n")
    assert status == 0
    assert is_token(token), "it is alone on standard output"
    assert token not in err
    assert "life send:default/cli.* receive:default/cli.a:workers calls_per_s=500" in err
    shown = secured.call("GET", "/v1/principals/life").json
    (secret,) = shown["tokens"]
    assert abs(secret["expires_at_ms"] - secret["created_ms"] - 90 * DAY_MS) < 60_000
    assert secured.call("POST", "/v1/topics/cli.b/messages", {"body": "x"}, token).status == 200

    status, out, err = run("create", "life", "--allow", "viewer")
    assert (status, out) == (0, ""), "a change makes no token"
    assert "life existed: its grants, certificates and limits are now these" in err
    assert secured.call("POST", "/v1/topics/cli.b/messages", {"body": "x"}, token).status == 403

    status, _, err = run("create", "life")
    assert "warning: life may do nothing, since it has no grant" in err
    assert "warning" not in run("create", "life", "--allow", "redis")[2]
    assert "' ' is in no name" in run("create", "life", "--allow", "producer:lo ad*")[2]
    assert run("create", "life", "--allow", "viewer")[0] == 0

    status, out, err = run("rotate", "life", "--grace", "1h")
    fresh = out.removesuffix("\n")
    assert is_token(fresh)
    assert fresh != token
    assert secured.call("GET", "/v1/session", None, token).status == 200
    assert run("rotate", "life", "--finish")[:2] == (0, "")
    assert secured.call("GET", "/v1/session", None, token).status == 401

    status, out, err = run("list")
    (line,) = [line for line in out.splitlines() if line.startswith("life ")]
    assert re.fullmatch(r"life viewer token=\S+Z used=\S+Z", line), line
    principals = [json.loads(line) for line in run("list", "--json")[1].splitlines()]
    assert {each["principal"] for each in principals} >= {"admin", "life"}

    assert run("show", "life") == (0, f"{line}\n", "")
    (shown,) = map(json.loads, run("show", "life", "--json")[1].splitlines())
    assert (shown["principal"], shown["grants"]) == ("life", ["viewer"])
    assert "there is no principal" in run("show", "nobody")[2]

    assert run("revoke", "life") == (0, "life revoked\n", "")
    assert secured.call("GET", "/v1/session", None, fresh).status == 401


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("create", "x", "--allow", "sends"), 1, "'sends' is no right and no role"),
        (("create", "x", "--expires", "soon"), 2, "argument --expires: 'soon' is not a time"),
        (("rotate", "nobody"), 1, "there is no principal 'nobody'"),
        (("rotate", "admin", "--grace", "1y"), 2, "argument --grace: '1y' is not a duration"),
        (("rotate", "admin", "--finish", "--expires", "+90d"), 1, "finish makes no token"),
        (("revoke", "admin"), 1, "the last administrator"),
    ],
)
def test_wrong_words(run: Run, words: tuple[str, ...], status: int, text: str) -> None:
    got, out, err = run(*words)
    assert (got, out) == (status, "")
    assert text in err


def test_generate(run: Run) -> None:
    first, second = (run("generate")[1].strip() for _ in range(2))
    assert is_token(first)
    assert first != second


def test_init(
    start_broker: Callable[..., Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token works from the next start on; the folder has its digest, and its owner alone."""
    data = tmp_path / "data"
    assert main(["init", str(data)]) == 0
    said = capsys.readouterr()
    token = said.out.removesuffix("\n")
    assert is_token(token)
    assert "not shown again" in said.err
    assert token not in said.err
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "first-admin").stat().st_mode) == 0o600
    assert token not in (data / "first-admin").read_text()
    broker = start_broker(folder=tmp_path)
    assert broker.call("GET", "/v1/topics").status == 401
    headers = {"Authorization": f"Bearer {token}"}
    assert broker.call("GET", "/v1/principals", None, headers).status == 200


def test_init_where_nothing_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["init", str(tmp_path / "file" / "data")]) == 2
    said = capsys.readouterr()
    assert said.out == "", "no token that would not work"
    assert "cannot be used" in said.err


def test_init_in_the_folder_of_another_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root could write the file, but the user of the broker could not read it."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert main(["init", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "belongs to user" in said.err
    assert list(tmp_path.iterdir()) == []
