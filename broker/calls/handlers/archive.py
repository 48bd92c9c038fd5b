"""Handlers of the archive: its progress, and releasing hours that have been copied."""

from __future__ import annotations

from typing import Any

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.engine.upkeep import archive
from delaylog.broker.engine.upkeep.archive_next import NextHour, members, next_hour
from delaylog.broker.host.node import Node
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.work import Work


async def _members(node: Node) -> dict[str, Any]:
    state, now_ms = node.engine.state, node.clock.now_ms()
    following: list[NextHour | None] = []

    def search() -> Work:
        following.append((yield from next_hour(state, now_ms)))

    await node.run(search())
    found = archive.archive_status(state, now_ms)
    return {
        "hold": found.hold,
        "released_through_ms": found.released * HOUR_MS,
        "archivable_through_ms": found.archivable * HOUR_MS,
        "hours": found.held_hours,
        "oldest_ms": None if found.oldest is None else found.oldest * HOUR_MS,
        "next": members(following[0]),
    }


async def get_archive(ctx: Context) -> Answer:
    """GET /v1/archive."""
    # Clients act on this answer, so it waits until its state is durable.
    return await ctx.durable_answer(await _members(ctx.node))


async def release_archive(ctx: Context) -> Answer:
    """POST /v1/archive/release: let hours be removed; a repeat is answered with `already`."""
    values, node = await ctx.values(), ctx.node
    state, copy = node.engine.state, archive.ArchiveCopy(values["position"], values["rows"])
    done = archive.release(state, values["through_ms"], node.clock.now_ms(), copy)
    answer = {"result": "done" if done else "already", **await _members(node)}
    await node.role.safe(state.position, None)
    return ctx.answer(answer)
