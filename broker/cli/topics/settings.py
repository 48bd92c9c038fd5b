"""`delaylog topic show|set|drop`: the settings of a topic."""

from __future__ import annotations

import argparse
from typing import Any, Final

from delaylog.broker.cli.arguments import add_broker, add_option, add_options
from delaylog.broker.cli.connection import call, client_of, given
from delaylog.broker.cli.failing import DONE, UsageError
from delaylog.broker.cli.output import emit, print_members, say
from delaylog.broker.cli.parser import add_action, add_actions
from delaylog.client.errors import NotFound
from delaylog.contract.calls.shapes import DROP_FORCE
from delaylog.contract.calls.topic_settings import SETTINGS
from delaylog.contract.members import Flag

_LIMITS: Final = ("rate_limit", "quota")
"""Settings that a topic need not have."""


def topic_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog topic`."""
    actions = add_actions(parser)
    show = add_action(actions, "show", "show a topic and its settings", "topic show reminders")
    add_broker(show)
    changing = add_action(
        actions,
        "set",
        "change settings of a topic, which is made if it does not exist; others stay",
        "topic set reminders --max-retry 5 --backoff first=1s,max=5m",
        "topic set reminders --ttl 1h --dead-keep 30d",
        "topic set reminders --rate-limit per_second=100,burst=10",
        "topic set reminders --no-rate-limit",
    )
    add_broker(changing)
    for member in SETTINGS.members:
        if isinstance(member, Flag):
            # Absent means that it stays.
            add_option(changing, member, action=argparse.BooleanOptionalAction, default=None)
        elif member.name == "lease_ms":
            add_option(changing, member, help="the lease of a receive that gives none")
        else:
            add_option(changing, member)
    for name in _LIMITS:
        changing.add_argument(
            f"--no-{name.replace('_', '-')}",
            action="append_const",
            const=name,
            dest="removed",
            help=f"remove the {name.replace('_', ' ')}",
        )
    drop = add_action(
        actions, "drop", "drop a topic that has no living messages", "topic drop reminders"
    )
    add_broker(drop)
    add_options(drop, DROP_FORCE)


async def topic_command(args: argparse.Namespace) -> int:
    """`delaylog topic`."""
    if args.action == "drop":
        await call(args, "deleteTopic", args.topic, force=args.force)
        say(args, {"topic": args.topic, "result": "done"}, f"{args.topic} dropped")
        return DONE
    if args.action == "set":
        topic = await _set(args)
    else:
        topic = await call(args, "getTopic", args.topic)
    if args.json:
        emit(topic)
    else:
        settings = topic.pop("settings")
        print_members(topic | settings)
    return DONE


async def _set(args: argparse.Namespace) -> dict[str, Any]:
    """Change the settings that are named, or make the topic with them."""
    wanted: Any = given(args, *SETTINGS.members)
    removed: Any = dict.fromkeys(args.removed or ())
    if not wanted and not removed:
        raise UsageError(
            "there is nothing to set: give a setting, such as --max-retry 5; the first send makes "
            "a topic with the defaults"
        )
    async with client_of(args) as client:
        try:
            return await client.update_topic(args.topic, **wanted, **removed)
        except NotFound:
            return await client.put_topic(args.topic, wanted)
