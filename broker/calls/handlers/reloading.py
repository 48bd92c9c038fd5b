"""The handler that has configured files read again."""

from __future__ import annotations

from delaylog.broker.calls.answer import Answer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.problems import Problem
from delaylog.broker.host.watch.reloader import ReloadError


async def reload_files(ctx: Context) -> Answer:
    """POST /v1/reload: read certificates and other configured files again."""
    try:
        names = await ctx.node.reloader.reload()
    except ReloadError as error:
        raise Problem("conflict", str(error)) from None
    return ctx.answer({"reloaded": names})
