"""The command line against the table of calls: each call has a verb that makes it, or a reason.

A server notes what it is asked and refuses everything, so a verb gets no further than its calls.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Final

import pytest

from delaylog.broker.cli.main import main
from delaylog.broker.cli.verbs import VERBS
from delaylog.contract.calls.table import BY_NAME
from delaylog.extras import EXTRAS
from tests.http_server import Handler, served, url_of
from tests.programs import run_program

VERBS_OF: Final = {
    "listTopics": "topics",
    "getTopic": "topic show t",
    "putTopic": "topic set t --max-retry 5",
    "updateTopic": "topic set t --max-retry 5",
    "deleteTopic": "topic drop t",
    "getStats": "stats t",
    "getForecast": "forecast t",
    "getTail": "tail t",
    "listMessages": "list t",
    "listDead": "dead t",
    "listDeadReasons": "dead t --reasons",
    "send": "send t x",
    "receive": "receive t",
    "peek": "peek t",
    "ack": "ack t r",
    "nack": "nack t r",
    "reject": "reject t r",
    "extend": "extend t r --lease 5m",
    "cancelMany": "cancel t --all",
    "rescheduleMany": "reschedule t --all --delay 1h",
    "replayMany": "replay t m",
    "getMessage": "show t m",
    "reschedule": "reschedule t m --delay 1h",
    "cancel": "cancel t m",
    "listGroups": "groups list t",
    "getGroup": "groups show t g",
    "putGroup": "groups make t g",
    "deleteGroup": "groups drop t g",
    "listTargets": "target list t",
    "listAllTargets": "target list",
    "getTarget": "target show t g",
    "putTarget": "target set t g --to https://example.com/",
    "updateTarget": "target change t g --push off",
    "deleteTarget": "target drop t g",
    "listSchedules": "schedule list t",
    "listAllSchedules": "schedule list",
    "getSchedule": "schedule show t s",
    "putSchedule": "schedule put t s --cron * --body x",
    "updateSchedule": "schedule change t s --catch-up all",
    "deleteSchedule": "schedule drop t s",
    "pauseSchedule": "schedule pause t s",
    "resumeSchedule": "schedule resume t s",
    "runSchedule": "schedule run t s",
    "backfillSchedule": "schedule backfill t s --from 2026-11-01",
    "previewSchedule": "schedule preview t s",
    "trySchedule": "schedule try t s --cron *",
    "purge": "purge t",
    "pause": "pause t",
    "resume": "resume t",
    "listClaims": "claims list t",
    "getClaim": "claims show t c",
    "extendClaim": "claims extend t c --lease 5m",
    "ackClaim": "claims ack t c",
    "releaseClaim": "claims release t c",
    "getClock": "clock",
    "acceptClock": "clock --accept",
    "getHold": "resume --dry-run",
    "putHold": "hold",
    "releaseHold": "resume",
    "reload": "reload",
    "getArchive": "archive show",
    "releaseArchive": "archive release --through 2026-12-01",
    "listJobs": "jobs",
    "getJob": "job show j",
    "stopJob": "job stop j",
    "listTransactions": "transactions list",
    "getTransaction": "transactions show x",
    "abort": "transactions abort x",
    "getCluster": "cluster status",
    "handOver": "cluster handover",
    "changeMembers": "cluster remove beta",
    "listPrincipals": "token list",
    "getPrincipal": "token show p",
    "putPrincipal": "token create p --allow viewer",
    "rotatePrincipal": "token rotate p",
    "revokePrincipal": "token revoke p",
}
_WORKER: Final = "a worker makes it for its handlers; `receive` and `ack` are the verbs"
_COLUMNS: Final = "its messages are columns of numbers, for programs such as jobs on Spark"
_BROWSER: Final = "a session keeps a browser logged in; a command has its token"
WITHOUT: Final = {
    "beginAttempts": _WORKER,
    "ackAndReceive": _WORKER,
    "makeClaim": _COLUMNS,
    "readClaim": _COLUMNS,
    "begin": _COLUMNS,
    "stage": _COLUMNS,
    "commit": _COLUMNS,
    "stream": "a program keeps a stream open; `receive` is the verb",
    "getOverview": "`stats` has the counts of each topic, `forecast` its load",
    "countMessages": "`cancel --all` and the like say what their job has matched",
    "getSession": _BROWSER,
    "openSession": _BROWSER,
    "closeSession": _BROWSER,
    "makeTicket": _BROWSER,
}
"""Calls without a verb, and why."""


class Refusing(ThreadingHTTPServer):
    """Refuses calls, as of something unknown, and notes the method and path of each. A cluster has
    an answer, since changes of it ask for the leader first.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.url = url_of(self)


class _Handler(Handler):
    server: Refusing

    def respond(self) -> None:
        path = self.path.partition("?")[0].replace("/ns/default", "")
        self.server.asked.append(f"{self.command} {path}")
        self.read()
        status, answer = 404, {"code": "unknown", "status": 404, "detail": "nothing is here"}
        if self.server.asked[-1] == "GET /v1/cluster":
            status, answer = 200, {"leader": None}
        self.answer(status, json.dumps(answer).encode())


@pytest.fixture(scope="module")
def refusing() -> Iterator[Refusing]:
    with served(Refusing()) as server:
        yield server


def test_every_call_has_a_verb_or_a_reason() -> None:
    known = VERBS_OF.keys() | WITHOUT.keys()
    assert known == BY_NAME.keys(), "VERBS_OF here has the verb of a call, or WITHOUT the reason"
    assert VERBS_OF.keys() & WITHOUT.keys() == set()


@pytest.mark.parametrize("name", VERBS_OF)
def test_the_verb_makes_the_call(name: str, refusing: Refusing) -> None:
    refusing.asked.clear()
    main([*VERBS_OF[name].split(), "--url", refusing.url, "--json"])
    form = re.sub(r"{\w+}", "[^/]+", BY_NAME[name].request_line)
    assert [line for line in refusing.asked if re.fullmatch(form, line)], refusing.asked


WITHOUT_SERVER: Final = """
import sys
sys.modules.update(dict.fromkeys({packages}))
from delaylog.broker.cli import main
for words in {verbs}:
    main([*words.split(), "--url", {url!r}, "--json"])
sys.exit(main(["completion", "bash"]))
"""


def test_a_client_alone_makes_every_call(refusing: Refusing) -> None:
    """Where the packages of the extra `server` are not installed."""
    refusing.asked.clear()
    verbs = list(VERBS_OF.values())
    program = WITHOUT_SERVER.format(packages=set(EXTRAS["server"]), verbs=verbs, url=refusing.url)
    done = run_program(sys.executable, "-P", "-c", program, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "pip install" not in done.stderr
    for name in VERBS_OF:
        form = re.sub(r"{\w+}", "[^/]+", BY_NAME[name].request_line)
        assert [line for line in refusing.asked if re.fullmatch(form, line)], name
    # Verbs of the broker are words without arguments.
    assert all(verb in done.stdout for verb in VERBS)
