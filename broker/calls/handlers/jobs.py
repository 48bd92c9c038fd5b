"""Handlers of jobs, which change many messages: list them, show their progress, stop them."""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.engine.jobs.job_table import Job
from delaylog.broker.engine.jobs.jobs import end_job
from delaylog.contract.calls.call import Right

_NAME: Final = re.compile(r"j([1-9][0-9]{0,17})\Z")


def job_members(ctx: Context, job: Job) -> dict[str, Any]:
    """The members of a job in an answer; without the right `bodies`, without a failure's reason."""
    topic = ctx.node.engine.state.by_number.get(job.topic)
    members = job.filter.members()
    key = None if topic is None else (topic.namespace, topic.name)
    if key is None or not ctx.caller.may("bodies", key, job.filter.group):
        members.pop("reason", None)
        members.pop("reason_prefix", None)
    return {
        "job": f"j{job.number}",
        "namespace": None if topic is None else topic.namespace,
        "topic": None if topic is None else topic.name,
        "action": job.action,
        "filter": members,
        "rate": job.rate,
        "deliver_at_ms": job.deliver_at_ms,
        "state": job.state,
        "scanned": job.scanned,
        "matched": job.matched,
        "done": job.done,
        "too_late": job.too_late,
        "begun_ms": job.begun_ms,
        "ended_ms": job.ended_ms or None,
    }


def _may(ctx: Context, job: Job, right: Right) -> bool:
    """Whether the caller has a right on the topic of a job."""
    topic = ctx.node.engine.state.by_number.get(job.topic)
    if topic is None:
        return ctx.caller.permissions.may_everywhere(right)
    return ctx.caller.may(right, (topic.namespace, topic.name))


def _the_job(ctx: Context, right: Right) -> Job:
    """The job of the path, or 404, also if the caller has no such right on its topic."""
    name = ctx.params["job"]
    found = _NAME.match(name)
    job = ctx.node.engine.state.jobs.by_number.get(int(found[1])) if found else None
    if job is None or not _may(ctx, job, right):
        raise Problem("unknown", f"there is no job {name[:64]!r}")
    return job


async def list_jobs(ctx: Context) -> Answer:
    """GET /v1/jobs: the newest first."""
    state = ctx.node.engine.state
    members = [
        job_members(ctx, job)
        for job in reversed(state.jobs.by_number.values())
        if _may(ctx, job, "read")
    ]
    return await ctx.durable_answer({"jobs": members})


async def get_job(ctx: Context) -> Answer:
    """GET /v1/jobs/{job}."""
    return await ctx.durable_answer(job_members(ctx, _the_job(ctx, "read")))


async def stop_job(ctx: Context) -> Answer:
    """DELETE /v1/jobs/{job}: stop a job; messages that it changed stay changed."""
    state = ctx.node.engine.state
    job = _the_job(ctx, "change")
    end_job(state, job, "cancelled", ctx.node.clock.now_ms())
    return await ctx.durable_answer(job_members(ctx, job))
