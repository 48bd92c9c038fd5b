"""Tasks: their calls as bodies of messages, and when a schedule has them called.

A body is a JSON object `{"task", "args", "kwargs"}`. Tasks of several programs, and of other
languages, may share a topic: the name says which function is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from delaylog.client.calls.schedules import RuleKeywords, ScheduleKeywords
from delaylog.client.codec import JSON
from delaylog.client.handlers import Reject
from delaylog.client.wire.checks import check_keywords

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage


class TaskCall(NamedTuple):
    """The name of a task and its arguments."""

    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        """The body of its message. TypeError for an argument that JSON cannot express."""
        try:
            return JSON.encode(self._asdict())
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the arguments of task {self.task} are stored as JSON, which cannot express one "
                f"of them: {error}"
            ) from None

    def check(self, function: Callable[..., Any]) -> None:
        """TypeError if the function does not take the arguments."""
        try:
            inspect.signature(function).bind(*self.args, **self.kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.task}: {error}") from None

    @classmethod
    def of(cls, message: LeasedMessage) -> TaskCall:
        """The call in a message. Reject for a body that is none: no retry can help."""
        try:
            members = message.json()
            call = cls(members["task"], members.get("args", ()), members.get("kwargs", {}))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Reject("the body is not the call of a task") from None
        # A text is a sequence too, whose characters would be the arguments.
        is_call = (
            isinstance(call.task, str)
            and isinstance(call.args, list | tuple)
            and isinstance(call.kwargs, dict)
        )
        if not is_call:
            raise Reject("the body is not the call of a task")
        return call


class Repeat(NamedTuple):
    """A schedule of a task."""

    said: ScheduleKeywords
    name: str | None
    """None: that of the task."""
    shard: str | None

    @classmethod
    def of(
        cls,
        when: str | timedelta,
        tz: str | ZoneInfo | None,
        name: str | None,
        shard: str | None,
        rules: RuleKeywords,
    ) -> Repeat:
        """From the arguments of `every`. TypeError and ValueError; the broker checks the rest."""
        check_keywords("every", rules, RuleKeywords)
        said: ScheduleKeywords
        if isinstance(when, str):
            said = {"cron": when, "zone": tz}
        elif not isinstance(when, timedelta):
            raise TypeError(
                "every takes a cron expression or a timedelta as an interval, not "
                f"{type(when).__name__}"
            )
        elif tz is not None:
            raise ValueError("an interval is elapsed time, which has no zone: leave tz out")
        else:
            said = {"interval": when}
        return cls({**said, **rules}, name, shard)
