"""The `delaylog` command end to end against a live broker: output, --json and exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog import __version__
from tests.broker.cli.conftest import error_of, rows
from tests.broker.verify.damaged_folder import flip
from tests.starts.warm import PROGRAM, run_warm


def delaylog(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command."""
    return run_warm(*words, stdin=stdin)


def test_version() -> None:
    """--version prints the version and nothing else."""
    done = delaylog("--version")
    assert done.returncode == 0
    assert done.stdout.decode() == f"delaylog {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["send"],
        ["send", "", "hi"],
        ["cancel", "t", ""],
        ["cancel", "t", b"\xff"],
        ["list", "t", "--tag", b"\xff"],
        ["topics", "--namespace", "a b"],
        ["receive", "t", "--max", "x"],
    ],
)
def test_wrong_usage(words: list[object]) -> None:
    """Wrong words: status 2 and how it is used."""
    done = delaylog(*words)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("delaylog: ")
    assert "--help` " in line


def test_send_and_receive(broker: Any, topic: str) -> None:
    """One message with every option, sent, counted, received and acked."""
    url = ["--url", broker.url]
    words = ["--id", "a/b", "--key", "k", "--tag", "x", "--tag", "y", "--priority", 3]
    (sent,) = rows(delaylog("send", topic, "hé", *words, "--ttl", "1h", "--json", *url))
    assert sent["id"] == "a/b"
    assert sent["result"] == "created"
    message = broker.call("GET", f"/v1/topics/{topic}/messages/a%2Fb").json
    assert (message["key"], message["tags"], message["priority"]) == ("k", ["x", "y"], 3)
    assert message["expires_at_ms"] - message["deliver_at_ms"] == 3_600_000
    (got,) = rows(delaylog("receive", topic, "--wait", "20s", "--ack", "--json", *url))
    assert got["id"] == "a/b"
    assert got["body"] == "hé"
    assert got["attempts"] == 1
    (stats,) = rows(delaylog("stats", topic, "--json", *url))
    assert stats["topic"] == topic
    assert stats["counts"]["acked"] == 1
    assert delaylog("receive", topic, *url).returncode == 3, "nothing there"


def test_plain_output(broker: Any, topic: str) -> None:
    """Without --json: a line a message, a table of counts."""
    url = ["--url", broker.url]
    done = delaylog("send", topic, "hello", "--delay", 0, "--id", "a", *url)
    assert done.returncode == 0
    sent = done.stdout.decode()
    assert re.fullmatch(r"a\t20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\tcreated\n", sent)
    done = delaylog("receive", topic, "--wait", "20s", *url)
    assert done.returncode == 0
    name, receipt, due, attempts, body = done.stdout.decode().split()
    assert (name, due, attempts, body) == ("a", sent.split()[1], "1", "hello")
    assert broker.counts(topic)["leased"] == 1, "nothing acks unless it is asked to"
    done = delaylog("extend", topic, receipt, "--lease", "1h", *url)
    assert (done.returncode, done.stdout.decode()) == (0, f"{receipt}\tdone\n")
    done = delaylog("nack", topic, receipt, "--delay", 0, *url)
    assert (done.returncode, done.stdout.decode()) == (0, f"{receipt}\tdone\n")
    assert delaylog("peek", topic, "--bodies-only", *url).stdout == b"hello\n"
    done = delaylog("receive", topic, "--wait", "20s", "--bodies-only", *url)
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    gone = delaylog("ack", topic, receipt, *url)
    assert (gone.returncode, gone.stdout.decode()) == (1, f"{receipt}\tgone\n")
    forced = delaylog("ack", topic, "a", "--by-id", "--json", *url)
    assert rows(forced) == [{"id": "a", "result": "done"}]
    assert broker.counts(topic)["acked"] == 1
    done = delaylog("stats", *url)
    assert done.returncode == 0
    assert topic.encode() in done.stdout
    assert b"waiting" in done.stdout.splitlines()[0]


def test_lines(broker: Any, topic: str) -> None:
    """Lines of standard input are messages, more than one call's worth."""
    url = ["--url", broker.url]
    lines = b"".join(b"line %d\n" % n for n in range(2_500))
    sent = rows(delaylog("send", topic, "--delay", "1h", "--json", *url, stdin=lines))
    assert len(sent) == 2_500
    assert broker.counts(topic)["waiting"] == 2_500
    for words in ([], ["-", "--json"]):
        empty = delaylog("send", topic, *words, *url, stdin=b"")
        assert (empty.returncode, empty.stdout) == (2, b"")
        assert b"standard input is empty, so nothing was sent" in empty.stderr
    done = delaylog("send", topic, "--id", "a", *url, stdin=b"x\n")
    assert done.returncode == 2
    assert b"--id" in done.stderr


def test_bytes_stay_bytes(broker: Any, topic: str) -> None:
    """What is no UTF-8 goes in and comes out as it is; --json carries it as base64."""
    url = ["--url", broker.url]
    assert len(rows(delaylog("send", topic, "--json", *url, stdin=b"a\xff\xfe\n"))) == 1
    done = delaylog("receive", topic, "--wait", "20s", "--bodies-only", *url)
    assert (done.returncode, done.stdout) == (0, b"a\xff\xfe\n")
    assert delaylog("send", topic, b"\xff", *url).returncode == 0
    (got,) = rows(delaylog("receive", topic, "--wait", "20s", "--json", *url))
    assert got["body_base64"] == "/w=="
    assert "body" not in got


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--id", "~a", b"id must not begin with '~'"),
        ("--priority", "high", b"'high' is not a whole number"),
        ("--backoff", "{", b"must be a JSON object"),
        ("--backoff", "soon", b"'soon' is not a duration"),
        ("--backoff", "last=1s", b"has no 'last'; it has first, max, factor, jitter"),
        ("--delay", "90", b"90 has no unit: write a number and a unit"),
        ("--at", "1770000000", b"may mean seconds or milliseconds: write an ISO time"),
        ("--backoff", '{"factor": 0}', b"backoff.factor must lie from 1"),
        ("--headers", "[1]", b"must be a JSON object"),
        ("--headers", '{"a": 1}', b"headers must be an object of texts"),
    ],
)
def test_a_wrong_field_is_wrong_usage(
    broker: Any, topic: str, option: str, value: str, said: bytes
) -> None:
    done = delaylog("send", topic, "x", option, value, "--url", broker.url)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert broker.call("GET", f"/v1/topics/{topic}").status == 404


def test_refusals(broker: Any, topic: str) -> None:
    """A refusal of the broker, or no broker: status 1, and one line that says why."""
    url, other = ["--url", broker.url], f"{topic}-2"
    broker.call("PUT", f"/v1/topics/{other}", {})
    for words, reason in (
        (["send", topic, "x", "--delay", "9999999d", *url], b"horizon"),
        (["send", "bad topic", "x", *url], b"topic"),
        (["receive", topic, "--max", 0, *url], b"max"),
        (["receive", topic, "--lease", 0, *url], b"lease_ms"),
        (["receive", topic, "--lease", "99999999999d", *url], b"lease_ms"),
        (["replay", other, "m", "--delay", "99999999999d", *url], b"horizon"),
        (["pause", "not-there", *url], b"not-there"),
        (["list", other, "--state", "late", *url], b"state"),
        (["show", other, "none", *url], b"none"),
        (["stats", "--url", "http://127.0.0.1:1"], b"127.0.0.1"),
    ):
        done = delaylog(*words)
        assert done.returncode == 1, (words, done)
        assert done.stderr.startswith(b"delaylog: ")
        assert reason in done.stderr
        lines = done.stderr.splitlines()
        # A call is repeated for 3 s while no broker answers, and says so after a second.
        assert lines[:-1] in ([], [b"delaylog: stats: 1 s"])
        assert done.stdout == b""
    assert broker.counts(topic) is None


def test_closed_output(broker: Any, topic: str) -> None:
    """A reader that goes away, as `| head` does, is no traceback."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [PROGRAM, "receive", topic, "--wait", "20s", "--ack", "--url", broker.url],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    assert broker.counts(topic)["leased"] == 1, "what was not printed is not acked"


def test_check(tmp_path: Path) -> None:
    """`check`: 0 for a history that holds, 2 for what cannot be read or asked."""
    good = tmp_path / "good.jsonl"
    answer = {"state": "running", "cron": "0 * * * *", "overlap": "allow", "catch_up": "all"}
    answer |= {"catch_up_window_ms": 0, "jitter_ms": 0, "n": 0, "skipped": 0, "next_ms": 3_600_000}
    put = {"t0": 0, "t1": 1, "op": "schedule", "ok": True, "id": "s", "answer": answer}
    good.write_text(f'{json.dumps(put)}\n{{"mark": "kill", "t": 5}}\n')
    assert delaylog("check", good).returncode == 0
    done = delaylog("check", good, "--json")
    assert done.returncode == 0
    json.loads(done.stdout)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    for words in ([bad], [tmp_path / "none"], [good, "--rules", "Z"]):
        done = delaylog("check", *words)
        assert done.returncode == 2, done
        assert b"delaylog check: " in done.stderr
        assert b"Traceback" not in done.stderr


def test_verify(start_broker: Any) -> None:
    """A folder that is served is left alone; one that was left is sound; damage is named."""
    broker = start_broker()
    folder = Path(broker.data_dir)
    later = {"body": "x" * 50, "delay_ms": 3_600_000}
    broker.post("/v1/topics/t/messages", [later | {"id": f"m{k}"} for k in range(20)])
    done = delaylog("verify", folder)
    assert done.returncode == 2
    assert b"in use" in done.stderr
    assert broker.stop() == 0
    (report,) = rows(delaylog("verify", folder, "--json"))
    assert report["sound"] is True
    assert report["rows"] == 20
    (path,) = folder.rglob("delay.log")
    flip(path, 100 * 8)
    done = delaylog("verify", folder)
    assert done.returncode == 1
    assert path.relative_to(folder).as_posix().encode() in done.stdout.splitlines()[0]
    assert delaylog("verify", folder / "hours").returncode == 2


def test_topics_cancel_and_reschedule(broker: Any, topic: str) -> None:
    """By id, each with its own result; the status says whether all were done."""
    url = ["--url", broker.url]
    for name in "abc":
        delaylog("send", topic, "x", "--id", name, "--delay", "1h", *url)
    assert topic in [row["topic"] for row in rows(delaylog("topics", "--json", *url))]
    assert delaylog("topics", *url).stdout.decode().count(topic) == 1
    done = delaylog("cancel", topic, "a", "nobody", "b", *url)
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines == [["a", "done", "cancelled"], ["nobody", "unknown"], ["b", "done", "cancelled"]]
    late = delaylog("cancel", topic, "a", *url)
    assert (late.returncode, late.stdout) == (1, b"a\ttoo_late\tcancelled\n")
    late = delaylog("cancel", topic, "a", "--json", *url)
    assert json.loads(late.stdout) == {"id": "a", "result": "too_late", "state": "cancelled"}
    unknown = delaylog("cancel", topic, "nobody", "--json", *url)
    assert json.loads(unknown.stdout) == {"id": "nobody", "result": "unknown"}
    (moved,) = rows(delaylog("reschedule", topic, "c", "--delay", 0, "--json", *url))
    assert (moved["id"], moved["result"]) == ("c", "done")
    (got,) = rows(delaylog("receive", topic, "--wait", "20s", "--json", *url))
    assert got["id"] == "c"
    assert delaylog("reschedule", topic, "c", *url).returncode == 2
    assert delaylog("cancel", topic, "c", "--url", "http://127.0.0.1:1").returncode == 1


def test_a_new_due_time(broker: Any, topic: str) -> None:
    """It is shown, a past one is named, and one without its option is noticed."""
    url = ["--url", broker.url]
    delaylog("send", topic, "x", "--id", "rent", "--delay", "1h", *url)
    due = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%dT%H:%M:00.000Z}"
    done = delaylog("reschedule", topic, "rent", "--at", due, *url)
    assert (done.stdout.decode(), done.stderr) == (f"rent\tdone\twaiting\t{due}\n", b"")
    for word in ("2h", "+2h"):
        none = delaylog("reschedule", topic, "rent", word, *url)
        assert (none.returncode, none.stdout) == (2, b"")
        hint = f": {word} was read as an id, write --delay 2h\n".encode()
        assert none.stderr.endswith(b"as --at TIME or --delay DURATION" + hint)
    none = delaylog("reschedule", topic, "rent", *url)
    assert none.stderr.endswith(b"as --at TIME or --delay DURATION\n")
    past = b"delaylog: 2020-01-01T00:00:00.000Z is past, which means now\n"
    at = ("--at", "2020-01-01T00:00Z")
    for words in (
        ("reschedule", topic, "rent", *at),
        ("reschedule", topic, "--all", *at),
        ("send", topic, "x", *at),
    ):
        done = delaylog(*words, *url)
        assert (done.returncode, done.stderr) == (0, past)
    assert delaylog("send", topic, *at, *url, stdin=b"x\n").stderr == past
    for quiet in ((*at, "--json"), ("--at", "now"), ("--delay", 0)):
        assert delaylog("send", topic, "x", *quiet, *url).stderr == b""


def test_clock(broker: Any) -> None:
    """What time it is there; accepting changes nothing when nothing is held."""
    url = ["--url", broker.url]
    (shown,) = rows(delaylog("clock", "--json", *url))
    assert abs(shown["now_ms"] - time.time() * 1000) < 60_000
    assert shown["held_ms"] == 0
    text = delaylog("clock", "--accept", *url).stdout.decode().splitlines()
    assert text[0] == "the broker's time changed by 0s"
    assert re.fullmatch(r"broker \S+Z wall \S+Z held 0s", text[1])


def test_errors_as_json(broker: Any, topic: str, tmp_path: Path) -> None:
    """With --json every verb fails in one form, on standard error; the status is the same."""
    url = ["--url", broker.url]
    for words, status, code in (
        (["send", topic, "x", "--delay", "9999999d", *url], 1, "bad_request"),
        (["purge", "not-there", *url], 1, "unknown"),
        (["topics", "--url", "http://127.0.0.1:1"], 1, "not_reached"),
        (["send", topic, "--id", "a", *url], 2, "usage"),
        (["send", topic, "x", "--delay", "soon"], 2, "usage"),
        (["receive"], 2, "usage"),
        (["verify", tmp_path / "no"], 2, "usage"),
        (["backup", tmp_path / "no", tmp_path / "b"], 2, "usage"),
        (["restore", tmp_path, tmp_path / "r"], 1, "backup"),
        (["dump", tmp_path / "tick"], 2, "usage"),
        (["check", tmp_path / "no"], 2, "unreadable"),
    ):
        done = delaylog(*words, "--json")
        error = error_of(done, status)
        assert error["code"] == code, (words, error)
    done = delaylog("send", topic, "x", "--delay", "9999999d", "--json", *url)
    assert error_of(done)["status"] == 400
    assert error_of(done)["field"] == "delay_ms"


def test_filters_make_jobs(broker: Any, topic: str) -> None:
    """What matches is changed, one line says how many; ids and filters do not go together."""
    url = ("--url", broker.url)
    for tag in ("red", "red", "blue"):
        assert delaylog("send", topic, "x", "--tag", tag, "--delay", "1h", *url).returncode == 0
    late = delaylog("reschedule", topic, "--tag", "red", "--delay", 0, "--json", *url)
    (job,) = rows(late)
    assert late.returncode == 0
    assert (job["state"], job["matched"], job["done"]) == ("done", 2, 2)
    assert job["filter"] == {"tag": "red"}
    assert len(rows(delaylog("receive", topic, "--max", 5, "--json", *url))) == 2
    left = delaylog("cancel", topic, "--all", "--rate", 1_000, *url)
    assert left.returncode == 1, "two of them are with a consumer"
    assert left.stdout.endswith(b" done matched 3 done 1 too_late 2\n")
    forced = delaylog("cancel", topic, "--state", "leased", "--force", *url)
    assert forced.returncode == 0
    assert forced.stdout.endswith(b" done matched 2 done 2 too_late 0\n")
    begun = rows(
        delaylog(
            *("cancel", topic, "--due-from", "2002-01-01T00:00:05Z"),
            *("--due-to", "2002-01-01T00:00:06Z", "--no-wait", "--json", *url),
        )
    )
    assert begun[0]["filter"] == {"due_from": 1_009_843_205_000, "due_to": 1_009_843_206_000}
    shown = rows(delaylog("job", "show", begun[0]["job"], "--json", *url))
    assert shown[0]["action"] == "cancel"
    listed = delaylog("jobs", *url).stdout.decode().splitlines()
    assert listed[0].split()[:3] == ["job", "action", "topic"]
    assert begun[0]["job"] in {line.split()[0] for line in listed}
    assert delaylog("job", "stop", "none", *url).returncode == 1
    for words in (
        ("cancel", topic),
        ("cancel", topic, "m", "--all"),
        ("cancel", topic, "m", "--tag", "red"),
        ("cancel", topic, "m", "--rate", 5),
        ("cancel", topic, "--all", "--tag", "red"),
        ("cancel", topic, "--state", "dead"),
        ("replay", topic),
        ("replay", topic, "--state", "ready"),
    ):
        assert delaylog(*words, *url).returncode == 2, words


def test_replay(broker: Any, topic: str) -> None:
    """Dead messages by id and by filter."""
    url = ("--url", broker.url)
    broker.call("PUT", f"/v1/topics/{topic}", {"max_retry": 0, "backoff": {"first_ms": 0}})
    for name in ("a", "b", "c"):
        delaylog("send", topic, "x", "--id", name, *url)
    got = rows(delaylog("receive", topic, "--max", 5, "--json", *url))
    receipts = [message["receipt"] for message in got]
    broker.post(f"/v1/topics/{topic}/nack", {"receipts": receipts})
    done = delaylog("replay", topic, "a", "nobody", "a", *url)
    assert done.returncode == 1
    assert [line.split() for line in done.stdout.decode().splitlines()] == [
        ["a", "done"],
        ["nobody", "unknown"],
        ["a", "too_late", "ready"],
    ]
    (job,) = rows(delaylog("replay", topic, "--state", "dead", "--delay", "5ms", "--json", *url))
    assert (job["matched"], job["done"], job["action"]) == (2, 2, "replay")
    assert broker.counts(topic)["dead"] == 0
