"""`delaylog doctor broker`: asks a running broker for its metrics and clock, and reports problems.

It changes nothing. It needs the right `metrics`. With `--folder` it also looks at this machine.

The checks are pure functions of what was gathered. A check yields findings; without findings it
passes. Times are those between two scrapes: a slow start hours ago is no fault of now.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from typing import Final

from delaylog import __version__
from delaylog.broker.cli.connection import ANSWER_S, route_of, waiting
from delaylog.broker.cli.doctor.findings import (
    GATE_MS_MAX,
    LAG_BYTES_WARN,
    Checks,
    Finding,
    Found,
    Mark,
    print_report,
    run_checks,
)
from delaylog.broker.cli.doctor.machine_checks import examine_machine, look
from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.watching.scrapes import READY, Change, Scrape, seconds_text
from delaylog.broker.cli.watching.top import scrape
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import json_call
from delaylog.client.errors import AnswerLost, ApiError, NotReached
from delaylog.contract.calls.table import CLOCK

# --------------------------------------------------------------------------------------- checks

CLOCK_MS_WARN: Final = 250
FREE_BYTES_WARN: Final = 4 << 30
SYNC_S_WARN: Final = 0.05
SYNC_S_FAIL: Final = 1.0
LATE_S_WARN: Final = 0.1
LOOP_S_WARN: Final = 0.05
STALL_S_WARN: Final = 1.0
"""A longer stall of the loop is reported as long as the process lives."""
DESCRIPTORS_WARN: Final = 65_536
USED_SHARE_WARN: Final = 0.8
IDLE_S_WARN: Final = 300.0
"""Age of a ready message from which its consumers count as stuck."""
NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Examined:
    """What is known of a broker."""

    change: Change
    """Two scrapes, some seconds apart."""
    unready: str
    """Why `/readyz` is 503; empty if it is not."""
    clock_ahead_ms: float
    """How far its wall clock is ahead of this machine's."""
    clock_error_ms: float
    """By how much `clock_ahead_ms` may be wrong."""
    own_release: str
    """The release of this command."""

    @property
    def now(self) -> Scrape:
        """The later scrape."""
        return self.change.now

    @property
    def watched(self) -> str:
        """For how long it was looked at."""
        return seconds_text(self.now.at_s - self.change.before.at_s)


def examine(broker: Examined) -> list[Finding]:
    """The findings of all checks, in the order in which an operator should read them."""
    return run_checks(CHECKS, broker)


def _ready(broker: Examined) -> Found:
    if broker.unready:
        yield Mark.FAIL, f"it is not ready: {broker.unready}", "the log of the broker says more"


def _held(broker: Examined) -> Found:
    if broker.now.value("delaylog_held"):
        text = "it is held: it delivers, pushes and fires nothing"
        yield (
            Mark.WARN,
            text,
            "`delaylog resume --dry-run` says what waits, `delaylog resume` ends it",
        )


def _release(broker: Examined) -> Found:
    for labels in broker.now.samples.get("delaylog_info", {}):
        release = dict(labels)["version"]
        if release != broker.own_release:
            text = f"the broker runs {release}, this command is of {broker.own_release}"
            yield Mark.WARN, text, "use the same release for both"


def _clock(broker: Examined) -> Found:
    held_s = broker.now.value("delaylog_clock_held_seconds")
    if held_s:
        text = f"its clock waits for {seconds_text(held_s)} until wall time has caught up"
        yield Mark.FAIL, text, "if the wall clock is right: delaylog clock --accept"
    if abs(broker.clock_ahead_ms) - broker.clock_error_ms > CLOCK_MS_WARN:
        side = "ahead of" if broker.clock_ahead_ms > 0 else "behind"
        text = f"its clock is {abs(broker.clock_ahead_ms):.0f} ms {side} this machine's"
        yield Mark.WARN, text, "look at NTP on both machines"
    steps = broker.now.value("delaylog_clock_steps_total")
    if steps:
        text = f"its wall clock has stepped {steps:.0f} times since the start"
        yield Mark.WARN, text, "let the NTP client slew the clock, and step it at boot only"


def _disk(broker: Examined) -> Found:
    now, free = broker.now, broker.now.value("delaylog_disk_free_bytes")
    if now.value("delaylog_disk_full"):
        text = "sends are refused for lack of disk space"
        yield Mark.FAIL, text, "make space: see `When the disk fills up` in docs/DISK.md"
    elif free < FREE_BYTES_WARN:
        text = f"{free / (1 << 30):.1f} GiB are free"
        yield Mark.WARN, text, "make space before sends are refused"
    if now.value("delaylog_reserve_bytes") < now.value("delaylog_reserve_target_bytes"):
        text = "the reserve file is not completely allocated"
        yield Mark.WARN, text, "make space: the broker then fills it by itself"
    if now.value("delaylog_audit_failing"):
        text = "the audit log cannot be written, and administrative calls are refused"
        yield Mark.FAIL, text, "see the broker's log for the error of DATA_DIR/audit"


def _syncs(broker: Examined) -> Found:
    p99_s = broker.change.quantile(0.99, "delaylog_fsync_seconds")
    if p99_s is None:
        text = f"nothing was synced within {broker.watched}, so its disk was not judged"
        yield Mark.OK, text, "--folder measures it, --watch looks for longer"
    elif p99_s > SYNC_S_WARN:
        mark = Mark.FAIL if p99_s > SYNC_S_FAIL else Mark.WARN
        text = f"syncs of the log took {seconds_text(p99_s)} or more within {broker.watched}"
        yield mark, text, "give the data folder a disk of its own, or a faster one"


def _loop(broker: Examined) -> Found:
    advice = "give it a processor; --log-level debug names the code that blocks"
    p99_s = broker.change.quantile(0.99, "delaylog_loop_lag_seconds")
    if p99_s is not None and p99_s > LOOP_S_WARN:
        text = f"its event loop was blocked for {seconds_text(p99_s)} or more within "
        yield Mark.WARN, text + broker.watched, advice
    longest_s = broker.now.value("delaylog_loop_lag_max_seconds")
    if longest_s > STALL_S_WARN:
        text = f"its event loop was once blocked for {seconds_text(longest_s)} since the start"
        yield Mark.WARN, text, advice


def _lateness(broker: Examined) -> Found:
    p99_s = broker.change.quantile(0.99, READY)
    if p99_s is None:
        text = f"no message became ready within {broker.watched}, so lateness was not judged"
        yield Mark.OK, text, ""
    elif p99_s > LATE_S_WARN:
        text = f"messages were ready {seconds_text(p99_s)} or more after their time within "
        yield Mark.WARN, text + broker.watched, "`delaylog show TOPIC ID` says why one was late"


def _descriptors(broker: Examined) -> Found:
    now = broker.now
    most, used = now.value("process_max_fds"), now.value("process_open_fds")
    if most and used / most > USED_SHARE_WARN:
        text = f"{used:.0f} of {most:.0f} descriptors are in use"
        yield Mark.FAIL, text, "raise the limit of open files (ulimit -n), or close connections"
    elif most and most < DESCRIPTORS_WARN:
        text = f"it may open {most:.0f} files and connections"
        yield Mark.WARN, text, f"raise the limit of open files to {DESCRIPTORS_WARN} (ulimit -n)"


def _consumers(broker: Examined) -> Found:
    ages = broker.now.samples.get("delaylog_oldest_due_age_seconds", {})
    if broker.now.value("delaylog_held"):
        return
    paused = {frozenset(labels) for labels in broker.now.samples.get("delaylog_topic_paused", {})}
    stuck = sorted(
        (-age, labels)
        for labels, age in ages.items()
        if age > IDLE_S_WARN
        and frozenset(pair for pair in labels if pair[0] != "group") not in paused
        and not broker.change.per_second("delaylog_delivered_total", **dict(labels))
    )
    for age, labels in stuck[:NAMED_MAX]:
        group = dict(labels)
        text = (
            f"nobody takes messages of {group['topic']}, group {group['group']}: one has been "
            f"ready for {seconds_text(-age)}"
        )
        yield Mark.WARN, text, f"start consumers, or see `delaylog stats {group['topic']}`"
    if len(stuck) > NAMED_MAX:
        yield Mark.WARN, f"{len(stuck) - NAMED_MAX} other groups wait in the same way", ""


def _push(broker: Examined) -> Found:
    for state in ("open", "disabled"):
        count = broker.now.value("delaylog_push_targets", state=state)
        if count:
            text = f"{count:.0f} push targets are {state} and receive nothing"
            yield Mark.WARN, text, "`delaylog target show TOPIC GROUP` says why"


def _certificates(broker: Examined) -> Found:
    for severity, mark in (("error", Mark.FAIL), ("warning", Mark.WARN)):
        count = broker.now.value("delaylog_certificate_faults", severity=severity)
        if count:
            text = f"faults of its certificates, such as an end that is near: {count:.0f}"
            yield mark, text, "the log of the broker has each, with what to do"
    for (label,), failed in broker.now.samples.get("delaylog_reload_failed", {}).items():
        if failed:
            text = f"changed files of {label[1]} cannot be used, and the old ones stay in use"
            yield Mark.FAIL, text, "`delaylog reload` says why"


def _replication(broker: Examined) -> Found:
    now, advice = broker.now, "`delaylog cluster doctor` asks all nodes"
    if "delaylog_cluster_leader_known" not in now.samples:
        return
    if not now.value("delaylog_cluster_leader_known"):
        yield Mark.FAIL, "it knows no leader", advice
    gate_s = now.value("delaylog_cluster_gate_age_seconds")
    if gate_s * 1_000 > GATE_MS_MAX:
        text = f"it leads, but no majority has acknowledged its rounds for {seconds_text(gate_s)}"
        yield Mark.FAIL, text, f"look at TCP and the MTU between the nodes; {advice}"
    missing = now.value("delaylog_cluster_missing_voters")
    if missing:
        yield Mark.WARN, f"{missing:.0f} voters are not connected to it", advice
    for labels, lag in now.samples.get("delaylog_cluster_follower_lag_bytes", {}).items():
        if lag > LAG_BYTES_WARN:
            node = dict(labels)["node"]
            yield Mark.WARN, f"node {node} lacks {lag / (1 << 20):.0f} MiB of the log", advice
    if now.value("delaylog_cluster_lost_commits_total"):
        text = "it has committed messages that the cluster has lost"
        yield Mark.FAIL, text, "`error` in /v1/cluster of this node says what to do"


CHECKS: Final[Checks[Examined]] = (
    ("ready", "it accepts work", _ready),
    ("held", "it delivers", _held),
    ("release", "it runs the release of this command", _release),
    ("clock", "its clock agrees with this machine's", _clock),
    ("disk", "there is space", _disk),
    ("syncs", "the disk is quick enough", _syncs),
    ("loop", "its event loop is not blocked", _loop),
    ("lateness", "messages become ready in time", _lateness),
    ("descriptors", "it may open enough files and connections", _descriptors),
    ("consumers", "no ready message has waited for long", _consumers),
    (
        "certificates",
        "its certificates are sound and valid for some time, and no changed file was refused",
        _certificates,
    ),
    ("push", "no push target is cut off", _push),
    ("replication", "its cluster is complete, or it is alone", _replication),
)


# ------------------------------------------------------------------------------------ gathering

_ADVICE: Final = "see that its process runs and is not stopped; on its machine, use --folder"


async def broker_command(args: argparse.Namespace) -> int:
    """`delaylog doctor broker`: 0, or 1 if a check fails. A warning is no failure."""
    route, options = route_of(args)
    # This node is examined, as it is: no retries until it is ready, and no other node instead.
    options["timeout_s"] = ANSWER_S
    transport = AsyncTransport(route, failover_s=0.0, **options)
    with waiting(args):
        try:
            report = examine(await _look(transport, args.watch / 1000))
        except (NotReached, AnswerLost) as error:
            # The machine of the broker may be the reason, so the machine is examined too.
            report = [Finding("ready", Mark.FAIL, f"no usable answer: {error}", _ADVICE)]
        finally:
            await transport.close()
    if args.folder is not None:
        try:
            report += examine_machine(look(args.folder))
        except OSError as error:
            raise UsageError(f"--folder {args.folder} cannot be measured: {error}") from None
    return print_report(report, as_json=args.json)


async def _look(transport: AsyncTransport, seconds: float) -> Examined:
    unready = ""
    try:
        await transport.carry(json_call("GET", "/readyz"))
    except ApiError as error:
        unready = error.detail
    asked_ms = time.time() * 1000
    answer = await transport.carry(json_call("GET", f"{CLOCK}?read=local"))
    answered_ms = time.time() * 1000
    first = await scrape(transport)
    await asyncio.sleep(seconds)
    return Examined(
        Change(first, await scrape(transport)),
        unready=unready,
        # By the middle of the call, which is wrong by half of its time at most.
        clock_ahead_ms=answer["wall_ms"] - (asked_ms + answered_ms) / 2,
        clock_error_ms=(answered_ms - asked_ms) / 2,
        own_release=__version__,
    )
