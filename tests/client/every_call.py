"""One example of each call of the clients, for tests of what all calls have in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

Example = Callable[[Any, Any], Any]
"""Makes the call on a client, with further keywords."""

CALLS: dict[str, Example] = {
    "receive": lambda c, limit: c.receive("t", **limit),
    "peek": lambda c, limit: c.peek("t", **limit),
    "get": lambda c, limit: c.get("t", "a", **limit),
    "cancel": lambda c, limit: c.cancel("t", "a", **limit),
    "reschedule": lambda c, limit: c.reschedule("t", "a", delay=timedelta(milliseconds=1), **limit),
    "replay": lambda c, limit: c.replay("t", ["a"], **limit),
    "settle_ids": lambda c, limit: c.settle_ids("t", "ack", ["a"], **limit),
    "topics": lambda c, limit: c.topics(**limit),
    "get_topic": lambda c, limit: c.get_topic("t", **limit),
    "put_topic": lambda c, limit: c.put_topic("t", **limit),
    "update_topic": lambda c, limit: c.update_topic("t", max_retry=1, **limit),
    "drop_topic": lambda c, limit: c.drop_topic("t", **limit),
    "stats": lambda c, limit: c.stats("t", **limit),
    "forecast": lambda c, limit: c.forecast("t", **limit),
    "purge": lambda c, limit: c.purge("t", **limit),
    "pause": lambda c, limit: c.pause("t", **limit),
    "resume": lambda c, limit: c.resume("t", **limit),
    "groups": lambda c, limit: c.groups("t", **limit),
    "put_group": lambda c, limit: c.put_group("t", "g", **limit),
    "drop_group": lambda c, limit: c.drop_group("t", "g", **limit),
}
"""Of `Client` and `AsyncClient`; most are calls of plain clients too, by the same arguments."""
OF_ONE_BROKER: dict[str, Example] = {
    "send": lambda c, limit: c.send("t", "x", **limit),
    "send_many": lambda c, limit: c.send_many("t", [{"body": "x"}], **limit),
    "send_bulk": lambda c, limit: c.send_bulk("t", ["x"], delay_ms=0, **limit),
    "ack": lambda c, limit: c.ack("t", ["0" * 32], **limit),
    "nack": lambda c, limit: c.nack("t", ["0" * 32], **limit),
    "receive_bulk": lambda c, limit: c.receive_bulk("t", **limit),
    "settle_bulk": lambda c, limit: c.settle_bulk("t", "ack", 1, **limit),
    "change_bulk": lambda c, limit: c.change_bulk("t", "cancel", ids=["a"], **limit),
    "page": lambda c, limit: c.page("t", **limit),
    "begin_job": lambda c, limit: c.begin_job("t", "cancel", {}, **limit),
    "job": lambda c, limit: c.job("j", **limit),
    "jobs": lambda c, limit: c.jobs(**limit),
    "clock": lambda c, limit: c.clock(**limit),
    "held": lambda c, limit: c.held(**limit),
    "hold": lambda c, limit: c.hold("a test", **limit),
    "release_hold": lambda c, limit: c.release_hold(**limit),
    "cluster": lambda c, limit: c.cluster(**limit),
    "hand_over": lambda c, limit: c.hand_over(**limit),
    "change_members": lambda c, limit: c.change_members("add", ["b"], **limit),
    "begin": lambda c, limit: c.begin("tx", **limit),
    "stage": lambda c, limit: c.stage("tx", "t", ["x"], delay_ms=0, **limit),
    "commit": lambda c, limit: c.commit("tx", [], **limit),
    "abort": lambda c, limit: c.abort("tx", **limit),
    "ack_and_receive": lambda c, limit: c.ack_and_receive("t", ["0" * 32], **limit),
    "all_schedules": lambda c, limit: c.all_schedules(**limit),
    "all_targets": lambda c, limit: c.all_targets(**limit),
    "backfill_schedule": lambda c, limit: c.backfill_schedule(
        "t", "s", from_ms=1, until_ms=2, **limit
    ),
    "begin_attempts": lambda c, limit: c.begin_attempts("t", ["0" * 32], **limit),
    "dead_reasons": lambda c, limit: c.dead_reasons("t", **limit),
    "drop_schedule": lambda c, limit: c.drop_schedule("t", "s", **limit),
    "drop_target": lambda c, limit: c.drop_target("t", "g", **limit),
    "extend": lambda c, limit: c.extend("t", ["0" * 32], lease=timedelta(milliseconds=1), **limit),
    "release": lambda c, limit: c.release("t", ["0" * 32], **limit),
    "leading": lambda c, limit: c.leading(**limit),
    "overview": lambda c, limit: c.overview(**limit),
    "pause_schedule": lambda c, limit: c.pause_schedule("t", "s", **limit),
    "preview_schedule": lambda c, limit: c.preview_schedule("t", "s", **limit),
    "put_schedule": lambda c, limit: c.put_schedule("t", "s", "x", cron="* * * * *", **limit),
    "put_target": lambda c, limit: c.put_target("t", "g", "http://127.0.0.1:9", **limit),
    "put_topic": lambda c, limit: c.put_topic("t", {}, **limit),
    "reject": lambda c, limit: c.reject("t", ["0" * 32], **limit),
    "reload": lambda c, limit: c.reload(**limit),
    "resume_schedule": lambda c, limit: c.resume_schedule("t", "s", **limit),
    "run_schedule": lambda c, limit: c.run_schedule("t", "s", **limit),
    "schedule": lambda c, limit: c.schedule("t", "s", **limit),
    "schedules": lambda c, limit: c.schedules("t", **limit),
    "settle_forced": lambda c, limit: c.settle_forced("t", "ack", ["a"], **limit),
    "stop_job": lambda c, limit: c.stop_job("j", **limit),
    "target": lambda c, limit: c.target("t", "g", **limit),
    "targets": lambda c, limit: c.targets("t", **limit),
    "transaction": lambda c, limit: c.transaction("tx", **limit),
    "transactions": lambda c, limit: c.transactions(**limit),
    "try_schedule": lambda c, limit: c.try_schedule("t", "s", cron="* * * * *", **limit),
    "update_schedule": lambda c, limit: c.update_schedule("t", "s", cron="0 3 * * *", **limit),
    "update_target": lambda c, limit: c.update_target("t", "g", push="off", **limit),
}
"""Of plain clients; those of `CALLS` that these have too are left out."""
