"""Consumer: a handler and its options.

Invalid options raise an error at the declaration, before a message is fetched.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, TypedDict

from delaylog.client.keywords import TagsMode
from delaylog.client.shards.receiving import Wanted
from delaylog.client.wire.checks import check_seconds, check_text, check_texts, check_topic
from delaylog.client.wire.durations import in_numbers
from delaylog.client.workers.backoff import Backoff

Handler = Callable[[Any], Any]
OnError = Callable[[Any, BaseException], Any]

BATCH_MAX: Final = 100
PREFETCH: Final = 2_000
LEASE_MS: Final = 30_000
WAIT_MS: Final = 20_000
GRACE_S: Final = 30.0
CONCURRENCY_MAX: Final = 10_000
"""Upper limit of `concurrency`: a process cannot have more threads, so more is a mistake."""


class DurationOptions(TypedDict, total=False):
    """The same durations as `lease_ms`, `wait_ms`, `grace_s` and `time_limit_s`."""

    lease: timedelta
    wait: timedelta
    grace: timedelta
    time_limit: timedelta | None


class TaskOptions(DurationOptions, total=False):
    """The options of the consumer of tasks: those of handlers that take one message."""

    group: str | None
    concurrency: int
    prefetch: int
    lease_ms: int
    wait_ms: int
    tags: Sequence[str]
    tags_mode: TagsMode
    exact_tags: bool
    backoff: Backoff | None
    grace_s: float
    time_limit_s: float | None
    consumer_name: str | None


class ConsumerOptions(TaskOptions, total=False):
    """The fields of Consumer except the topic and the functions, and durations as timedelta."""

    batch: bool | None
    batch_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A handler and its options; `Client.consumer` documents them. Validated on creation."""

    topic: str
    handler: Handler
    group: str | None = None
    concurrency: int = 8
    batch: bool | None = None
    batch_max: int | None = None
    prefetch: int = PREFETCH
    lease_ms: int = LEASE_MS
    wait_ms: int = WAIT_MS
    tags: Sequence[str] = ()
    tags_mode: TagsMode = "any"
    exact_tags: bool = False
    backoff: Backoff | None = None
    grace_s: float = GRACE_S
    time_limit_s: float | None = None
    consumer_name: str | None = None
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        _check_handler(self.handler)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise TypeError(f"backoff is a Backoff, not {type(self.backoff).__name__}")
        if self.on_error is not None and not callable(self.on_error):
            raise TypeError(f"on_error is called with a message and an error: {self.on_error!r}")
        for name, least in (
            ("concurrency", 1),
            ("batch_max", 1),
            ("prefetch", 0),
            ("lease_ms", 1),
            ("wait_ms", 0),
        ):
            value = getattr(self, name)
            if value is None and name == "batch_max":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
            if value < least:
                raise ValueError(f"{name} is at least {least}, not {value}")
        if self.concurrency > CONCURRENCY_MAX:
            raise ValueError(f"concurrency is at most {CONCURRENCY_MAX:,}, not {self.concurrency}")
        check_seconds("grace_s", self.grace_s)
        if self.time_limit_s is not None:
            check_seconds("time_limit_s", self.time_limit_s)
            if self.time_limit_s == 0:
                raise ValueError("time_limit_s is more than 0; None is no limit")
        check_text("group", self.group)
        check_text("consumer_name", self.consumer_name)
        # Used by every shard; an iterator would be exhausted by the first one.
        object.__setattr__(self, "tags", check_texts("tags", self.tags))
        if self.tags_mode not in typing.get_args(TagsMode):
            raise ValueError(f"tags_mode is any or all, not {self.tags_mode!r}")
        if self.exact_tags and not self.tags:
            raise ValueError("exact_tags goes with tags")
        if self.batch is None:
            batch = self.batch_max is not None or _wants_list(self.handler)
            object.__setattr__(self, "batch", batch)
        if self.batch_max is not None and not self.batch:
            raise ValueError("batch_max is for handlers of batches: say batch=True too")

    @property
    def rows_max(self) -> int:
        """The maximum number of messages per call of the handler."""
        return (self.batch_max or BATCH_MAX) if self.batch else 1

    @property
    def name(self) -> str:
        """The name in log messages."""
        return self.topic if self.group is None else f"{self.topic}/{self.group}"

    @property
    def wanted(self) -> Wanted:
        """Which messages its receives want."""
        return Wanted(
            self.topic,
            self.group,
            tuple(self.tags),
            self.tags_mode,
            self.exact_tags,
            consumer=self.consumer_name,
        )


_MEMBERS: Final = {each.name for each in fields(Consumer)}
_DURATIONS: Final = DurationOptions.__annotations__.keys()
_OWN: Final = {"topic", "handler", "on_error"}
assert ConsumerOptions.__annotations__.keys() - _DURATIONS == _MEMBERS - _OWN


def as_fields(options: TaskOptions) -> dict[str, Any]:
    """The options as fields of Consumer: each timedelta becomes a number.

    TypeError or ValueError for a wrong duration, or for one that is given twice.
    """
    return in_numbers(options, "lease_ms", "wait_ms", "grace_s", "time_limit_s")


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine; also for callable objects and partials."""
    called = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        called
    )


def _check_handler(handler: object) -> None:
    """TypeError for a handler that cannot be called with one argument.

    It would fail on every message, until all messages are dead.
    """
    if not callable(handler):
        raise TypeError(f"a handler is called with a message; {handler!r} cannot be")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        # Some built-in functions have no signature.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(f"a handler is called with a message alone; {handler!r}: {error}") from None


def _wants_list(handler: Handler) -> bool:
    """Whether the first parameter is annotated as a list of messages."""
    try:
        parameters = list(inspect.signature(handler).parameters.values())
        target: Any = inspect.unwrap(handler)
        while isinstance(target, functools.partial):
            target = target.func
        if not inspect.isfunction(target) and not inspect.ismethod(target):
            target = target.__call__
        hints = typing.get_type_hints(target)
    except (TypeError, ValueError, NameError, AttributeError):
        return False
    if not parameters:
        return False
    hint = hints.get(parameters[0].name)
    kind = typing.get_origin(hint) or hint
    return inspect.isclass(kind) and kind is not str and issubclass(kind, Sequence)
