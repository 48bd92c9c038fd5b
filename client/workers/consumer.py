"""Consumer: a handler and its options; its Backoff; and the objects that declare consumers.

Invalid options raise an error at the declaration, before a message is fetched. The functions of
Backoff are pure: they take the number of attempts and a random number, and return milliseconds.
Consumers use it for redelivery, workers also for calls to an unreachable broker. A worker declares
consumers, and its client the tasks; `delaylog worker` imports the module of both, and nothing may
run them meanwhile.
"""

from __future__ import annotations

import functools
import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, TypedDict

from delaylog.client.keywords import TagsMode
from delaylog.client.shards.receives import Wanted
from delaylog.client.wire.checks import check_text, check_texts, check_topic
from delaylog.client.wire.times import MS, check_span, span_ms

# -------------------------------------------------------------- exponential backoff with jitter

_NONE: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that start at `first`, grow by `factor` each time, and are at most `max`.

    `jitter` is the share of the wait that is random, from 0 (none) to 1 (all of it); it only
    shortens the wait. Raises TypeError or ValueError for invalid values.
    """

    first: timedelta = timedelta(seconds=1)
    max: timedelta = timedelta(minutes=5)
    factor: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        check_span("a backoff's first", self.first)
        check_span("a backoff's max", self.max)
        for name in ("factor", "jitter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"a backoff's {name} is a number, not {type(value).__name__}")
        if not _NONE <= self.first <= self.max:
            raise ValueError(f"a backoff needs 0 <= first <= max, not {self.first} and {self.max}")
        if not self.factor >= 1:
            raise ValueError(f"a backoff's factor is at least 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a backoff's jitter is between 0 and 1, not {self.jitter}")

    def delay_ms(self, attempts: int, chance: float) -> int:
        """The wait after this many attempts (at least 1); `chance` is a random number in [0, 1)."""
        assert attempts >= 1
        first, most = self.first / MS, self.max / MS
        if first:
            try:
                first *= float(self.factor) ** (attempts - 1)
            except OverflowError:
                first = most
        return int(min(most, first) * (1 - self.jitter * chance))


# For an unreachable broker: short at first, since a leader is elected within a second.
FETCHING: Final = Backoff(timedelta(milliseconds=100), timedelta(seconds=5), jitter=0.5)
SETTLING: Final = Backoff(timedelta(milliseconds=50), timedelta(seconds=1), jitter=0.5)


# -------------------------------------------------------------------- a handler and its options

Handler = Callable[[Any], Any]
OnError = Callable[[Any, BaseException], Any]

BATCH_MAX: Final = 100
PREFETCH: Final = 2_000
LEASE: Final = timedelta(seconds=30)
WAIT: Final = timedelta(seconds=20)
GRACE: Final = timedelta(seconds=30)
CONCURRENCY_MAX: Final = 10_000
"""Upper limit of `concurrency`: a process cannot have more threads, so more is a mistake."""
WAIT_S_MAX: Final = 1e9
"""Longest wait for a handler, 30 years: locks do not accept arbitrarily long timeouts."""


class TaskOptions(TypedDict, total=False):
    """The options of the consumer of tasks: those of handlers that take one message."""

    group: str | None
    concurrency: int
    prefetch: int
    lease: timedelta
    wait: timedelta
    tags: Sequence[str]
    tags_mode: TagsMode
    exact_tags: bool
    backoff: Backoff | None
    grace: timedelta
    time_limit: timedelta | None
    consumer_name: str | None


class ConsumerOptions(TaskOptions, total=False):
    """The fields of Consumer except the topic and the functions."""

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
    lease: timedelta = LEASE
    wait: timedelta = WAIT
    tags: Sequence[str] = ()
    tags_mode: TagsMode = "any"
    exact_tags: bool = False
    backoff: Backoff | None = None
    grace: timedelta = GRACE
    time_limit: timedelta | None = None
    consumer_name: str | None = None
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        _check_handler(self.handler)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):
            raise TypeError(f"backoff is a Backoff, not {type(self.backoff).__name__}")
        if self.on_error is not None and not callable(self.on_error):
            raise TypeError(f"on_error is called with a message and an error: {self.on_error!r}")
        for name, least in (("concurrency", 1), ("batch_max", 1), ("prefetch", 0)):
            value = getattr(self, name)
            if value is None and name == "batch_max":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
            if value < least:
                raise ValueError(f"{name} is at least {least}, not {value}")
        if self.concurrency > CONCURRENCY_MAX:
            raise ValueError(f"concurrency is at most {CONCURRENCY_MAX:,}, not {self.concurrency}")
        for name, shortest in (("lease", MS), ("wait", _NONE), ("grace", _NONE)):
            span = getattr(self, name)
            check_span(name, span)
            if span < shortest:
                raise ValueError(f"{name} is at least {shortest}, not {span}")
        if self.time_limit is not None:
            check_span("time_limit", self.time_limit)
            if self.time_limit <= _NONE:
                raise ValueError("time_limit is more than 0; None is no limit")
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
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return span_ms("lease", self.lease)

    @property
    def wait_ms(self) -> int:
        """The wait of a receive in milliseconds."""
        return span_ms("wait", self.wait)

    @property
    def grace_s(self) -> float:
        """The grace period in seconds."""
        return min(self.grace.total_seconds(), WAIT_S_MAX)

    @property
    def time_limit_s(self) -> float | None:
        """The time limit of a handler in seconds, None for none."""
        limit = self.time_limit
        return None if limit is None else min(limit.total_seconds(), WAIT_S_MAX)

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


_OWN: Final = {"topic", "handler", "on_error"}
assert {*ConsumerOptions.__annotations__, *_OWN} == {each.name for each in fields(Consumer)}


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


# ------------------------------------------------------------------------ objects with handlers


class NothingToRun(RuntimeError):
    """No handler was declared, so a worker would wait for nothing."""


class RunOnImport(RuntimeError):
    """The module of an application runs its workers when `delaylog worker` imports it."""


_IMPORTED: Final[list[str]] = []
"""The module that `delaylog worker` is importing."""


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Have workers that are started inside the block raise RunOnImport."""
    _IMPORTED.append(module)
    try:
        yield
    finally:
        _IMPORTED.pop()


def check_not_importing() -> None:
    """Raise RunOnImport inside of `importing`."""
    for module in _IMPORTED:
        raise RunOnImport(below_main(module))


def below_main(module: str) -> str:
    """What to change in a module that does on import what only a script may do."""
    return (
        f"{module} runs or closes its client when it is imported: put that below "
        '`if __name__ == "__main__":`'
    )


class Declaring(ABC):
    """Base class of the objects that have handlers."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise ClientClosed if this client or broker is closed."""

    @abstractmethod
    def _declare(self, consumer: Consumer) -> None:
        """Add a consumer. TypeError if the handler is of the wrong kind (coroutine or plain)."""
