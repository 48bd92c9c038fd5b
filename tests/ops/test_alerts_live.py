"""Prometheus scrapes real brokers and a real cluster, with tokens and TLS, and its alerts fire.

Method: one Prometheus with the rules of ops/, whose times and two thresholds are shortened
(`QUICK`): a trouble lasts seconds here. Each test makes the cause and waits until the alert of its
job fires. A broker without trouble is scraped all the time, and nothing of it may fire.
`test_alerts.py` has the rules as they are, also those whose cause takes hours.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from delaylog.broker.calls.access.first_admin import leave_digest
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.client.child_broker import free_port
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.broker.cluster.troubled import Troubled
from tests.broker.cluster.troubled import start as start_troubled
from tests.broker.conftest import Broker, start_broker  # noqa: F401 (a fixture)
from tests.certificates import HOSTS, Authority, write_pair
from tests.ops.prometheus import RULES_FILE, Prometheus
from tests.starts.warm import run_warm
from tests.waiting import await_that

FIRES_S: Final = 120
QUICK: Final = (
    # Windows that bridge two leaders, and others.
    (r"\[2m\]", "[5s]"),
    (r"\[(1m|5m|15m|1h)\]", "[8s]"),
    (r"age_seconds > 300", "age_seconds > 1"),
    (r"> 64 \* 1024 \* 1024", "> 64 * 1024"),
)
SCRAPES: Final = 3
PROGRAMS: Final = Path(__file__).parents[1] / "broker"


@dataclass
class One:
    """A broker, and a token of its administrator."""

    broker: Broker
    token: str = ""

    def call(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """The members of an answer; with another token, perhaps of a refusal."""
        headers = {"Authorization": f"Bearer {token or self.token}"} if self.token else {}
        answer = self.broker.call(method, path, body, headers)
        assert token or answer.status in (200, 201), answer
        return answer.json

    def send(self, topic: str, count: int = 1) -> None:
        self.call("POST", f"/v1/topics/{topic}/messages", [{"body": "x"}] * count)


@dataclass
class Watched:
    """What Prometheus scrapes."""

    prometheus: Prometheus
    one: One
    full: Broker
    slow: Broker
    troubled: Troubled
    folder: Path
    push_port: int
    """Nobody listens there."""

    @property
    def three(self) -> ThreeNodes:
        return self.troubled.nodes

    def fires(self, alert: str, job: str, **labels: str) -> dict[str, Any]:
        """The alert of a job, once it fires."""
        wanted = {"alertname": alert, "job": f"delaylog-{job}", **labels}
        return await_that(
            lambda: next(
                (
                    each
                    for each in self.prometheus.alerts()
                    if each["state"] == "firing" and wanted.items() <= each["labels"].items()
                ),
                None,
            ),
            lambda: f"{wanted} does not fire; there are {self.prometheus.alerts()}",
            seconds=FIRES_S,
            pause_s=0.2,
        )

    def ends(self, alert: str, job: str) -> None:
        """Wait until nothing of the alert is pending or firing."""
        await_that(
            lambda: (
                (alert, f"delaylog-{job}")
                not in {
                    (each["labels"]["alertname"], each["labels"].get("job"))
                    for each in self.prometheus.alerts()
                }
            ),
            lambda: f"{alert} of {job} does not end",
            seconds=FIRES_S,
            pause_s=0.2,
        )


def quick(rules: Any) -> Any:
    """The rules with short times; that of a disk that fills up needs half an hour of history."""
    used = set()
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if rule.get("alert") == "DelaylogDiskFullSoon":
            continue
        for pattern, instead in QUICK:
            rule["expr"], count = re.subn(pattern, instead, rule["expr"])
            used |= {pattern} if count else set()
        if "for" in rule:
            rule["for"] = "1s"
    assert used == {pattern for pattern, _ in QUICK}
    return rules


def admin(folder: Path) -> str:
    """The token of the first administrator of a folder that is served next."""
    token = make_token(os.urandom(RANDOM_BYTES))
    (folder / "data").mkdir(mode=0o700, parents=True)
    leave_digest(OsFileSystem(), str(folder / "data"), token)
    return token


@pytest.fixture(scope="module")
def watched(
    start_broker: Callable[..., Broker],  # noqa: F811 (pytest takes it by its name)
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    authority = Authority("ca")
    (folder / "ca.pem").write_bytes(authority.pem)
    cert, key = write_pair(folder, "broker", authority.issue("broker", hosts=HOSTS, days=(-1, 1)))
    token = admin(folder / "one")
    push_port = free_port()
    words = ("--tls-cert", str(cert), "--tls-key", str(key), "--push-allow", "127.0.0.0/8")
    one = start_broker(*words, "--push-ports", str(push_port), folder=folder / "one")
    one.tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    sound = start_broker()
    run = (sys.executable, str(PROGRAMS / "filling_disk.py"), "3000", str(folder / "taken"))
    full = start_broker(program=run)
    disk = (str(PROGRAMS / "failing_disk.py"), "slow", "*/log/*", str(folder / "slow"))
    slow = start_broker(program=(sys.executable, *disk))
    (folder / "three").mkdir()
    with start_troubled(folder / "three", token=make_token(os.urandom(RANDOM_BYTES))) as troubled:
        yield from _watched(folder, One(one, token), sound, full, slow, troubled, push_port)


def _watched(
    folder: Path,
    one: One,
    sound: Broker,
    full: Broker,
    slow: Broker,
    troubled: Troubled,
    push_port: int,
) -> Iterator[Watched]:
    """Prometheus, once it has scraped all of them."""
    three = troubled.nodes
    (folder / "one.token").write_text(one.token)
    (folder / "three.token").write_text(metrics_token(three))
    rules = quick(yaml.safe_load(RULES_FILE.read_text()))
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    tls = {"scheme": "https", "tls_config": {"ca_file": str(folder / "ca.pem")}}
    jobs = {
        "sound": ([sound.port], {}),
        "full": ([full.port], {}),
        "slow": ([slow.port], {}),
        "one": ([one.broker.port], {**tls, **authorization(folder / "one.token")}),
        "three": (list(three.http.values()), authorization(folder / "three.token")),
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": f"delaylog-{name}",
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
                **more,
            }
            for name, (ports, more) in jobs.items()
        ],
    }
    prometheus = Prometheus(folder, config)
    # What a counter has at its first scrape has not grown.
    scraped = (
        f"count(count_over_time(up[1m]) >= {SCRAPES}) == {sum(len(p) for p, _ in jobs.values())}"
    )
    try:
        await_that(
            lambda: prometheus.ask("query", query=scraped)["result"],
            lambda: prometheus.ask("targets"),
            seconds=FIRES_S,
        )
        yield Watched(prometheus, one, full, slow, troubled, folder, push_port)
    finally:
        prometheus.stop()


def metrics_token(three: ThreeNodes) -> str:
    """Of a principal that may do nothing else."""
    made = three.on_leader("PUT", "/v1/principals/prometheus", {"grants": ["metrics"]})
    assert made.status == 201, made
    token: str = made.json["token"]
    return token


def authorization(path: Path) -> dict[str, Any]:
    return {"authorization": {"credentials_file": str(path)}}


# ------------------------------------------------------------------ a broker that is alone


def test_refused_logins(watched: Watched) -> None:
    for _ in range(30):
        watched.one.call("GET", "/v1/topics", token="x")
    watched.fires("DelaylogLoginsRefused", "one", code="unauthorized", severity="ticket")
    watched.ends("DelaylogLoginsRefused", "one")


def test_an_old_backup(watched: Watched) -> None:
    """A new one ends the alert."""

    def back_up(name: str) -> None:
        made = run_warm("backup", watched.one.broker.data_dir, watched.folder / name)
        assert made.returncode == 0, made

    back_up("old backup")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(watched.one.broker.data_dir / "hold", (two_days_ago, two_days_ago))
    watched.fires("DelaylogBackupOld", "one")
    back_up("new backup")
    watched.ends("DelaylogBackupOld", "one")


def test_a_failed_reload(watched: Watched) -> None:
    cert = watched.folder / "broker.pem"
    good = cert.read_bytes()
    cert.write_text("no certificate")
    watched.fires("DelaylogReloadFailed", "one", source="tls")
    cert.write_bytes(good)
    watched.ends("DelaylogReloadFailed", "one")


def test_a_certificate_that_ends_tomorrow(watched: Watched) -> None:
    watched.fires("DelaylogCertificateEndsSoon", "one", source="server", severity="ticket")
    watched.fires("DelaylogCertificateEnds", "one", source="server", severity="page")


def test_consumers(watched: Watched) -> None:
    """Nobody takes messages; then somebody takes some of them."""
    watched.one.send("orders", 200)
    stuck = watched.fires("DelaylogConsumerStuck", "one", topic="orders", group="default")
    assert "instance" not in stuck["labels"]

    def one_more() -> bool:
        watched.one.call("POST", "/v1/topics/orders/receive", {"max": 1})
        time.sleep(0.3)
        return any(
            each["labels"]["alertname"] == "DelaylogConsumerSlow" and each["state"] == "firing"
            for each in watched.prometheus.alerts()
        )

    await_that(one_more, seconds=FIRES_S)
    watched.ends("DelaylogConsumerStuck", "one")


def test_a_dead_letter(watched: Watched) -> None:
    watched.one.send("dead", 3)
    for _ in range(3):
        (taken,) = watched.one.call("POST", "/v1/topics/dead/receive", {"max": 1})["messages"]
        watched.one.call("POST", "/v1/topics/dead/reject", {"receipts": [taken["receipt"]]})
        # A counter that begins at its value has not grown.
        time.sleep(2)
    watched.fires("DelaylogDeadLetters", "one", topic="dead")


def test_a_push_target_that_fails(watched: Watched) -> None:
    at = f"https://127.0.0.1:{watched.push_port}/"
    watched.one.call("PUT", "/v1/topics/pushed/groups/default/target", {"url": at})
    watched.one.send("pushed", 20)
    watched.fires("DelaylogPushTargetOpen", "one")


def test_a_held_broker(watched: Watched) -> None:
    watched.one.call("PUT", "/v1/hold", {})
    watched.fires("DelaylogHeld", "one")
    watched.one.call("DELETE", "/v1/hold")
    watched.ends("DelaylogHeld", "one")


def test_a_process_that_stands_still(watched: Watched) -> None:
    """Its loop was blocked, and what was due meanwhile is ready late; of the topic some messages
    were counted before.
    """
    watched.one.send("late", 3)
    time.sleep(2)
    due = [{"body": "x", "delay_ms": 1_000 + 50 * each} for each in range(40)]
    watched.one.call("POST", "/v1/topics/late/messages", due)
    time.sleep(1)
    os.kill(watched.one.broker.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(watched.one.broker.pid, signal.SIGCONT)
    watched.fires("DelaylogLoopBlocked", "one")
    watched.fires("DelaylogLateFast", "one")


def test_a_full_disk_and_a_slow_one(watched: Watched) -> None:
    taken, armed = watched.folder / "taken", watched.folder / "slow"
    taken.touch()
    armed.touch()
    for _ in range(3):
        One(watched.slow).send("t")
    watched.fires("DelaylogDiskFull", "full")
    watched.fires("DelaylogDiskSlow", "slow")
    taken.unlink()
    armed.unlink()
    watched.ends("DelaylogDiskFull", "full")


def test_a_broker_that_is_gone(watched: Watched) -> None:
    watched.slow.crash()
    watched.fires("DelaylogDown", "slow", severity="page")
    down = watched.fires("DelaylogNodeDown", "slow")
    assert down["labels"]["instance"] == f"127.0.0.1:{watched.slow.port}"


# ------------------------------------------------------------------ a cluster


def test_an_alert_survives_a_change_of_leaders(watched: Watched) -> None:
    """It neither ends nor begins anew, however often the leadership moves."""
    three = watched.three
    sent = three.on_leader("POST", "/v1/topics/orders/messages", {"body": "x"})
    assert sent.status == 200, sent
    began = watched.fires("DelaylogConsumerStuck", "three", topic="orders")
    for _ in range(5):
        moved = three.on_leader("POST", "/v1/cluster/handover", {})
        assert moved.status == 200, moved
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            now = watched.fires("DelaylogConsumerStuck", "three", topic="orders")
            assert now["activeAt"] == began["activeAt"]
            time.sleep(0.2)
    watched.fires("DelaylogLeadershipUnsteady", "three")


def test_a_leader_that_commits_nothing(watched: Watched) -> None:
    """The disks of both followers hang, so no other node could commit more."""
    three = watched.three
    for node in three.followers():
        watched.troubled.begin(node, "hung")
    with ThreadPoolExecutor(1) as pool:
        sent = ("POST", "/v1/topics/orders/messages", {"body": "x"})
        pool.submit(three.call, three.leader(), *sent)
        watched.fires("DelaylogNothingCommitted", "three", severity="page")
        watched.troubled.heal()
    watched.ends("DelaylogNothingCommitted", "three")


def test_nodes_that_reach_each_other_only_by_the_election(watched: Watched) -> None:
    """Whoever is elected, nobody has a majority, and all of them are scraped."""
    for node in NODES:
        watched.troubled.disconnect("drop", node, [each for each in NODES if each != node])
    watched.fires("DelaylogNoLeader", "three", severity="page")
    watched.fires("DelaylogMajorityLost", "three", severity="page")
    watched.troubled.heal()
    watched.ends("DelaylogMajorityLost", "three")


def test_a_node_is_gone_then_two_then_all(watched: Watched) -> None:
    """The metrics of those that are left are scraped all the time, also without a leader."""
    three = watched.three
    first, second = three.followers()
    three.kill(first)
    # What it lacks is more than it does at other times.
    for _ in range(4):
        sent = three.on_leader("POST", "/v1/topics/more/messages", {"body": "x" * 40_000})
        assert sent.status == 200, sent
    node = watched.fires("DelaylogNodeDown", "three")
    assert node["labels"]["instance"] == three.address(first)
    missing = watched.fires("DelaylogVoterMissing", "three")
    assert "instance" not in missing["labels"]
    watched.fires("DelaylogFollowerBehind", "three", node=str(first))
    three.kill(second)
    watched.fires("DelaylogNoLeader", "three", severity="page")
    watched.fires("DelaylogMajorityLost", "three", severity="page")
    up = watched.prometheus.ask("query", query='sum(up{job="delaylog-three"})')
    assert up["result"][0]["value"][1] == "1"
    three.kill()
    watched.fires("DelaylogDown", "three", severity="page")
    three.start()
    three.leader()
    for alert in ("DelaylogDown", "DelaylogNodeDown", "DelaylogNoLeader", "DelaylogVoterMissing"):
        watched.ends(alert, "three")


def test_a_node_that_keeps_what_the_others_have_lost(watched: Watched) -> None:
    """Two disks lose an acknowledged message."""
    three = watched.three
    three.caught_up()
    three.stop()
    lossy, keeper = NODES[:2], NODES[2]
    for node in lossy:
        shutil.copytree(three.data_dir(node), three.folder / f"before{node}")
    three.start()
    sent = three.on_leader("POST", "/v1/topics/lost/messages", {"body": "b"})
    assert sent.status == 200, sent
    three.caught_up()
    three.stop()
    for node in lossy:
        for name in ("meta", "vote"):
            shutil.copy(three.data_dir(node) / name, three.folder / f"before{node}" / name)
        shutil.rmtree(three.data_dir(node))
        shutil.move(three.folder / f"before{node}", three.data_dir(node))
    three.start(*lossy)
    sent = three.on_leader("POST", "/v1/topics/lost/messages", {"body": "c"})
    assert sent.status == 200, sent
    three.start(keeper, wait=False)
    page = watched.fires("DelaylogQuarantined", "three", severity="page")
    assert page["labels"]["instance"] == three.address(keeper)


# ------------------------------------------------------------------ and none


def test_nothing_fired_of_a_broker_without_trouble(watched: Watched) -> None:
    """On a busy machine its event loop does stand still for half a second now and then."""
    sound = 'job="delaylog-sound",alertstate="firing",alertname!="DelaylogLoopBlocked"'
    query = f"max_over_time(ALERTS{{{sound}}}[1h])"
    found = watched.prometheus.ask("query", query=query)["result"]
    assert found == []
    scraped = watched.prometheus.ask("query", query='min_over_time(up{job="delaylog-sound"}[1h])')
    assert scraped["result"][0]["value"][1] == "1"
