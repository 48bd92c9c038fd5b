"""`delaylog cluster` against a broker that runs alone; three nodes have tests of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from delaylog.broker.cli import clusters
from delaylog.broker.cli.main import main
from tests.broker.cli.conftest import error_of
from tests.http_server import Handler, served, url_of


@pytest.mark.parametrize(
    "words", [("status",), ("members",), ("doctor",), ("handover", "--to", "2")]
)
def test_without_a_cluster(run: Any, words: tuple[str, ...]) -> None:
    done = run("cluster", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("delaylog: 404 unknown: this broker runs alone")
    assert error_of(run("cluster", *words, "--json"))["code"] == "unknown"


def test_wrong_words(run: Any) -> None:
    assert run("cluster", "leave").returncode == 2


MEMBERS = {"version": 5, "voters": ["alpha"], "learners": ["delta"], "advice": None}
LAGS = (409, {"code": "conflict", "detail": "delta has not caught up"})


class Leader(ThreadingHTTPServer):
    """The leader of a cluster, which answers the changes of members as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = url_of(self)
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[str] = []
        self.voters = [1]


class _Handler(Handler):
    server: Leader

    def respond(self) -> None:
        server = self.server
        if self.command == "POST":
            server.asked.append(json.loads(self.read())["action"])
            status, answer = server.answers.pop(0)
        else:
            members = [
                {"node": node, "name": name, "voter": node in server.voters, "removed": False}
                for node, name in ((1, "alpha"), (4, "delta"))
            ]
            status, me = 200, {"node": 1, "name": "alpha", "http": server.url}
            answer = {**me, "leader": me, "version": 6, "members": members}
        self.answer(status, json.dumps(answer).encode())


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    monkeypatch.setattr(clusters, "_LOOK_SECONDS", 0.01)
    with served(Leader()) as server:
        yield server


def add(leader: Leader, *answers: tuple[int, dict[str, Any]]) -> int:
    leader.answers = [(200, MEMBERS), *answers]
    words = ("--peer", "h:8712", "--http", "h:8711", "--url", leader.url, "--json")
    return main(["cluster", "add", "4", "--name", "delta", *words])


def test_add_waits_for_what_passes_by_itself(
    leader: Leader, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {**MEMBERS, "voters": ["alpha", "delta"], "learners": []}
    assert add(leader, LAGS, LAGS, (200, both)) == 0
    assert leader.asked == ["add", "promote", "promote", "promote"]
    assert json.loads(capsys.readouterr().out) == both


def test_add_does_not_wait_for_a_limit(leader: Leader, capsys: pytest.CaptureFixture[str]) -> None:
    full = {"code": "conflict", "field": "nodes", "detail": "a cluster has 7 voters at most"}
    assert add(leader, (409, full)) == 1
    assert leader.asked == ["add", "promote"]
    assert "a cluster has 7 voters at most" in capsys.readouterr().err


def test_add_is_done_when_somebody_else_has_promoted_the_node(
    leader: Leader, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.voters.append(4)
    already = {"code": "conflict", "field": "nodes", "detail": "delta is a voter already"}
    assert add(leader, LAGS, (409, already)) == 0
    assert json.loads(capsys.readouterr().out) == {
        **MEMBERS, "version": 6, "voters": ["alpha", "delta"], "learners": []
    }  # fmt: skip
