"""Verbs that change selected messages: cancel, reschedule, replay, by ids or by a filter.

For ids the command prints a line for each. A filter creates a job in the broker; the command shows
its progress, and the job goes on if the command is interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, add_options, flag_of, name
from delaylog.broker.cli.connection import client_of, given, in_spans
from delaylog.broker.cli.failures import DONE, WRONG, Interrupted, UsageError
from delaylog.broker.cli.messages.lists import by_id
from delaylog.broker.cli.messages.sends import WHEN, add_time, say_if_past
from delaylog.broker.cli.output import columns_text, emit
from delaylog.broker.cli.parser import add_examples
from delaylog.broker.cli.progress import Progress
from delaylog.broker.cli.values import id_text, is_span, time_text
from delaylog.client import AsyncPlainClient
from delaylog.client.errors import ApiError
from delaylog.contract.calls.shapes import CANCEL_FORCE, FILTER, FILTER_STATE, RATE

POLL_SECONDS: Final = 0.1


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog cancel`."""
    _add_chosen(parser, ("waiting", "ready", "leased", "dead"))
    add_options(parser, CANCEL_FORCE)
    add_examples(
        parser,
        "cancel reminders rent-2026-12",
        "cancel reminders --tag user-17",
        "cancel reminders --state dead --due-to -30d --force",
    )


def reschedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog reschedule`."""
    _add_chosen(parser, ("waiting", "ready", "leased"))
    add_time(parser)
    add_examples(
        parser,
        "reschedule reminders rent-2026-12 --at 2026-12-24T09:00",
        "reschedule reminders --tag user-17 --delay 0",
    )


def replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog replay`."""
    _add_chosen(parser, ("dead",))
    add_time(parser)
    add_examples(
        parser,
        "replay reminders rent-2026-12",
        "replay reminders --reason-prefix ValueError:",
        "replay reminders --all --rate 500 --delay 1m",
    )


def _add_chosen(parser: argparse.ArgumentParser, states: tuple[str, ...]) -> None:
    """Which messages: ids, or a filter, which creates a job."""
    add_broker(parser)
    parser.add_argument(
        "id", nargs="*", type=name, metavar="ID", help="ids; without ids give a filter, or --all"
    )
    parser.add_argument("--all", action="store_true", help="every message that can be changed")
    for member in FILTER.shape.members:
        own = {"choices": states} if member is FILTER_STATE else {}
        add_option(parser, member, **own)
    add_options(parser, RATE)
    parser.add_argument("--no-wait", action="store_true", help="begin the job, do not wait for it")


async def cancel_command(args: argparse.Namespace) -> int:
    """`delaylog cancel`: 0 when all are cancelled, 1 otherwise."""

    if args.state == "dead" and not args.force:
        raise UsageError("cancelling dead messages removes the dead letters: add --force")

    def cancel(client: AsyncPlainClient, message_id: str) -> Awaitable[dict[str, Any]]:
        return client.cancel(args.topic, message_id, force=args.force)

    return await _control(args, cancel, {"force": True} if args.force else {})


async def reschedule_command(args: argparse.Namespace) -> int:
    """`delaylog reschedule`: 0 when all have the new time, 1 otherwise."""
    if not given(args, *WHEN):
        raise UsageError(_no_time(args.id))

    def reschedule(client: AsyncPlainClient, message_id: str) -> Awaitable[dict[str, Any]]:
        return client.reschedule(args.topic, message_id, **in_spans(given(args, *WHEN)))

    return await _control(args, reschedule, given(args, *WHEN))


def _no_time(ids: list[str]) -> str:
    """What is said of a command line without a time. The last id may be one."""
    last = ids[-1].removeprefix("+") if ids else ""
    meant = f": {ids[-1]} was read as an id, write --delay {last}" if is_span(last) else ""
    return f"give the new time, as --at TIME or --delay DURATION{meant}"


async def replay_command(args: argparse.Namespace) -> int:
    """`delaylog replay`: 0 when all are replayed, 1 otherwise."""

    async def replay(client: AsyncPlainClient, message_id: str) -> dict[str, Any]:
        (result,) = await client.replay(args.topic, [message_id], **in_spans(given(args, *WHEN)))
        return result

    return await _control(args, replay, given(args, *WHEN))


async def _control(
    args: argparse.Namespace,
    act: Callable[[AsyncPlainClient, str], Awaitable[dict[str, Any]]],
    members: dict[str, Any],
) -> int:
    wanted = given(args, *FILTER.shape.members)
    if args.all and wanted:
        raise UsageError("give either a filter or --all, not both")
    if bool(args.id) == (args.all or bool(wanted)):
        options = ", ".join(flag_of(member.name) for member in FILTER.shape.members)
        raise UsageError(f"give ids, or a filter ({options}), or --all")
    if args.id:
        if args.rate is not None or args.no_wait:
            raise UsageError("--rate and --no-wait need a filter or --all, not ids")
        status = await _by_ids(args, act)
    else:
        if args.rate is not None:
            members["rate"] = args.rate
        status = await _by_filter(args, wanted, members)
    if "deliver_at_ms" in members:
        say_if_past(args)
    return status


async def _by_ids(
    args: argparse.Namespace, act: Callable[[AsyncPlainClient, str], Awaitable[dict[str, Any]]]
) -> int:
    """Print a line for each id: done, too_late with the state, or unknown."""
    status = DONE
    async with client_of(args) as client:
        for given in args.id:
            message_id, answer = await by_id(given, lambda each: _result(act(client, each)))
            if answer["result"] != "done":
                status = WRONG
            if args.json:
                emit({"id": message_id} | answer)
            else:
                more = _details(args.verb, answer)
                print(columns_text((id_text(message_id), answer["result"], *more)))
    return status


async def _result(changed: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The result of a change, also of one that is refused for what the message is."""
    try:
        return await changed
    except ApiError as error:
        if error.code not in ("too_late", "unknown"):
            raise
        state = {} if error.state is None else {"state": error.state}
        return {"result": error.code, **state}


def _details(verb: str, answer: dict[str, Any]) -> list[str]:
    """The columns behind the result: where it was too late, or the state; and the new due time."""
    groups, state = answer.get("groups"), answer.get("state")
    columns = [f"too late in {','.join(groups)}"] if groups else []
    if state is not None and not groups:
        columns.append(state)
    if verb == "reschedule" and "deliver_at_ms" in answer:
        columns.append(time_text(answer["deliver_at_ms"]))
    return columns


async def _by_filter(
    args: argparse.Namespace, wanted: dict[str, Any], members: dict[str, Any]
) -> int:
    """Begin a job, show its progress, and print its counts at the end."""
    async with client_of(args) as client:
        job = await client.begin_job(args.topic, args.verb, wanted, **in_spans(members))
        if not args.no_wait:
            job = await _watched(client, job, args)
    if args.json:
        emit(job)
    else:
        counts = " ".join(f"{name} {job[name]}" for name in ("matched", "done", "too_late"))
        print(job["job"], job["state"], counts)
    whole = job["state"] in ("done", "running") and job["too_late"] == 0
    return DONE if whole else WRONG


async def _watched(
    client: AsyncPlainClient, job: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    """The job at its end. Raises Interrupted, which names the job, since it goes on."""
    name = job["job"]
    try:
        with Progress(f"{args.verb} {name}", unit="messages", quiet=args.json) as progress:
            while job["state"] == "running":
                await asyncio.sleep(POLL_SECONDS)
                job = await client.job(name)
                progress(f"{job['scanned']:,} rows scanned", job["done"])
    except asyncio.CancelledError:
        raise Interrupted(
            f"interrupted, but the job {name} goes on: `delaylog job show {name}` shows its "
            f"progress, `delaylog job stop {name}` stops it"
        ) from None
    return job
