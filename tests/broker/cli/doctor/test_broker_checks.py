"""Each check of `delaylog doctor broker`: a sound broker passes, each fault is found by its check.

Method: the metrics of a sound broker, changed in one place; and the command against a real one.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.connection import ANSWER_S
from delaylog.broker.cli.doctor.broker import CHECKS, NAMED_MAX, Examined, examine
from delaylog.broker.cli.doctor.machine_checks import CHECKS as MACHINE_CHECKS
from delaylog.broker.cli.watching.scrapes import Change, parse_scrape
from tests.starts.warm import as_text, run_warm

SOUND = """
delaylog_info{version="1.0"} 1
delaylog_disk_free_bytes 1e11
delaylog_reserve_bytes 5
delaylog_reserve_target_bytes 5
process_max_fds 1048576
process_open_fds 40
delaylog_cluster_leader_known 1
delaylog_cluster_follower_lag_bytes{node="2"} 100
"""
OLD = 'delaylog_oldest_due_age_seconds{namespace="default",topic="%s",group="mail"} 900\n'


def examined(more: str = "", before: str = "", **facts: Any) -> Examined:
    change = Change(parse_scrape(SOUND + before, 0.0), parse_scrape(SOUND + more, 2.0))
    sound = Examined(change, unready="", clock_ahead_ms=40.0, clock_error_ms=2.0, own_release="1.0")
    return replace(sound, **facts)


def histogram(name: str, bound: float) -> str:
    """A hundred values, two of which are above `bound`."""
    return f'{name}_bucket{{le="{bound}"}} 98\n{name}_bucket{{le="+Inf"}} 100\n'


FAULTS = {
    "unready": ("ready", "fail", examined(unready="the node is stopping")),
    "older": ("release", "warn", examined(own_release="2.0")),
    "not released": ("held", "warn", examined("delaylog_held 1\n" + OLD % "t")),
    "held": ("clock", "fail", examined("delaylog_clock_held_seconds 3")),
    "stepped": ("clock", "warn", examined("delaylog_clock_steps_total 2")),
    "ahead": ("clock", "warn", examined(clock_ahead_ms=300.0)),
    "behind": ("clock", "warn", examined(clock_ahead_ms=-300.0)),
    "full": ("disk", "fail", examined("delaylog_disk_full 1")),
    "scarce": ("disk", "warn", examined("delaylog_disk_free_bytes 1e9")),
    "reserve": ("disk", "warn", examined("delaylog_reserve_bytes 4")),
    "audit": ("disk", "fail", examined("delaylog_audit_failing 1")),
    "certificate": (
        *("certificates", "fail"),
        examined('delaylog_certificate_faults{severity="error"} 1'),
    ),
    "refused files": (
        *("certificates", "fail"),
        examined('delaylog_reload_failed{source="tls"} 1'),
    ),
    "certificate soon": (
        *("certificates", "warn"),
        examined('delaylog_certificate_faults{severity="warning"} 2'),
    ),
    "slow": ("syncs", "warn", examined(histogram("delaylog_fsync_seconds", 0.5))),
    "hanging": ("syncs", "fail", examined(histogram("delaylog_fsync_seconds", 5.0))),
    "stalled": ("loop", "warn", examined("delaylog_loop_lag_max_seconds 10")),
    "blocked": ("loop", "warn", examined(histogram("delaylog_loop_lag_seconds", 0.2))),
    "late": ("lateness", "warn", examined(histogram("delaylog_ready_lateness_seconds", 1.0))),
    "files": ("descriptors", "warn", examined("process_max_fds 1024")),
    "files used": ("descriptors", "fail", examined("process_open_fds 900000")),
    "stuck": ("consumers", "warn", examined(OLD % "t")),
    "open": ("push", "warn", examined('delaylog_push_targets{state="open"} 1')),
    "no leader": ("replication", "fail", examined("delaylog_cluster_leader_known 0")),
    "no majority": ("replication", "fail", examined("delaylog_cluster_gate_age_seconds 3.5")),
    "missing": ("replication", "warn", examined("delaylog_cluster_missing_voters 1")),
    "lag": (
        "replication",
        "warn",
        examined('delaylog_cluster_follower_lag_bytes{node="2"} 1e9'),
    ),
    "lost": ("replication", "fail", examined("delaylog_cluster_lost_commits_total 1")),
}


def test_a_sound_broker() -> None:
    assert {each.mark for each in examine(examined())} == {"ok"}
    assert [each.check for each in examine(examined())] == [name for name, _, _ in CHECKS]


def test_each_check_has_a_fault() -> None:
    assert {check for check, _, _ in FAULTS.values()} == {name for name, _, _ in CHECKS}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault(fault: str) -> None:
    check, mark, broker = FAULTS[fault]
    found = [each for each in examine(broker) if each.mark != "ok"]
    assert [(each.check, each.mark) for each in found] == [(check, mark)]
    assert found[0].advice


def test_what_is_no_fault() -> None:
    """An offset that the time of the call explains, an old message of a group that is consumed,
    what was slow before, and a broker that is alone."""
    slow = examined(clock_ahead_ms=400.0, clock_error_ms=200.0)
    assert {each.mark for each in examine(slow)} == {"ok"}
    delivered = 'delaylog_delivered_total{namespace="default",topic="t",group="mail"} '
    consumed = examined(OLD % "t" + delivered + "9", delivered + "5")
    assert {each.mark for each in examine(consumed)} == {"ok"}
    past = histogram("delaylog_fsync_seconds", 5.0) + histogram(
        "delaylog_ready_lateness_seconds", 30.0
    )
    assert {each.mark for each in examine(examined(past, past))} == {"ok"}
    alone = examined()
    text = "\n".join(line for line in SOUND.splitlines() if "cluster" not in line)
    alone = replace(alone, change=Change(parse_scrape(text, 0.0), parse_scrape(text, 2.0)))
    assert {each.mark for each in examine(alone)} == {"ok"}


def test_what_was_not_seen_is_not_called_sound() -> None:
    """Purpose: an idle broker on a slow disk is not told that its disk is quick."""
    idle = {each.check: each.text for each in examine(examined())}
    assert "not judged" in idle["syncs"]
    assert "not judged" in idle["lateness"]
    busy = histogram("delaylog_fsync_seconds", 0.01) + histogram(
        "delaylog_ready_lateness_seconds", 0.01
    )
    seen = {each.check: each.text for each in examine(examined(busy.replace("98", "100")))}
    for name, text, _ in CHECKS:
        assert seen[name] == text


def test_a_paused_topic_is_not_stuck() -> None:
    paused = 'delaylog_topic_paused{namespace="default",topic="t"} 1\n'
    assert {each.mark for each in examine(examined(OLD % "t" + paused))} == {"ok"}
    found = [each.text for each in examine(examined(OLD % "u" + paused)) if each.mark != "ok"]
    assert len(found) == 1, "only that topic is paused"


def test_many_stuck_groups_are_counted() -> None:
    many = "".join(OLD % f"t{n}" for n in range(NAMED_MAX + 3))
    found = [each for each in examine(examined(many)) if each.check == "consumers"]
    assert len(found) == NAMED_MAX + 1
    assert found[-1].text == "3 other groups wait in the same way"


def test_a_real_broker(broker: Any, run: Any) -> None:
    """It is alone and idle. Its descriptors and its disk are those of this machine."""
    done = run("doctor", "broker", "--json", "--watch", "1s")
    found = json.loads(done.stdout)
    marks = {each["check"]: each["mark"] for each in found["checks"]}
    assert set(marks) == {name for name, _, _ in CHECKS}
    for check in ("ready", "release", "clock", "consumers", "push", "replication"):
        assert marks[check] == "ok", found
    assert done.returncode == int(not found["healthy"])


def test_the_machine_of_a_real_broker(broker: Any, run: Any, tmp_path: Path) -> None:
    """The folder is measured, and nothing is left in it."""
    words = ("doctor", "broker", "--json", "--watch", "0s", "--folder")
    done = run(*words, str(tmp_path))
    checks = [each["check"] for each in json.loads(done.stdout)["checks"]]
    assert checks[-3:] == [name for name, _, _ in MACHINE_CHECKS]
    assert list(tmp_path.iterdir()) == []
    done = run(*words, str(tmp_path / "absent"))
    assert done.returncode == 2
    assert "cannot be measured" in done.stderr


def test_a_broker_that_hangs(tmp_path: Path) -> None:
    """It takes connections and answers nothing, as a stopped one does: that is a finding, soon, and
    its machine is looked at, which may be the reason.
    """
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        began_s = time.monotonic()
        done = as_text(
            run_warm("doctor", "broker", "--json", "--url", url, "--folder", str(tmp_path))
        )
        took_s = time.monotonic() - began_s
    assert done.returncode == 1, done.stderr
    ready, *machine = json.loads(done.stdout)["checks"]
    assert (ready["check"], ready["mark"]) == ("ready", "fail")
    assert "no answer in time" in ready["text"]
    assert [each["check"] for each in machine] == [name for name, _, _ in MACHINE_CHECKS]
    # The call of the command itself may take as long on a busy machine.
    assert ANSWER_S <= took_s < 6 * ANSWER_S
