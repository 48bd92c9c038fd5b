"""Tasks: functions whose calls are messages of a topic, handled by workers.

The arguments are sent as JSON. Return values are not stored. Tasks of one topic share a consumer,
so they share its concurrency and its other options.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack
from zoneinfo import ZoneInfo

from delaylog.client._async.topic_calls import AsyncTopicCalls
from delaylog.client._async.workers.beginnings import AsyncBeginnings
from delaylog.client._async.workers.shift import OnError, check_handler
from delaylog.client.calls.schedules import RuleKeywords, ScheduleKeywords
from delaylog.client.errors import ApiError
from delaylog.client.keywords import DueKeywords, MessageKeywords, OneSendKeywords
from delaylog.client.models import Sent
from delaylog.client.wire.checks import check_keywords, check_text, check_topic, check_whole
from delaylog.client.workers.consumer import Consumer, Declaring, TaskOptions
from delaylog.client.workers.tasks import Repeat, TaskCall

if TYPE_CHECKING:
    from delaylog.client._async.message import AsyncMessage

P = ParamSpec("P")
R = TypeVar("R")


class AsyncTask(Generic[P, R]):
    """A function whose calls can be sent to workers. Calling it directly still works.

    `send`, `send_in` and `send_at` raise the errors of the client's `send`, and TypeError for
    arguments that the function does not take or JSON cannot express.
    """

    def __init__(
        self,
        tasks: AsyncTasking,
        topic: str,
        name: str,
        function: Callable[P, Awaitable[R]],
        fields: MessageKeywords,
    ) -> None:
        # First, because it copies the attributes of the function, which may itself be a task.
        functools.update_wrapper(self, function)
        self.topic = topic
        self.name = name
        self._tasks = tasks
        self._function = function
        self._fields = fields

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, without a message."""
        return await self._function(*args, **kwargs)

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Have a worker call the function now."""
        return await self._sent(self._body(*args, **kwargs))

    async def send_in(self, delay: timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Have a worker call the function after a delay, counted from the arrival at the broker."""
        return await self._sent(self._body(*args, **kwargs), delay=delay)

    async def send_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Have a worker call the function at a time. The time has a time zone."""
        return await self._sent(self._body(*args, **kwargs), at=when)

    def having(self, **fields: Unpack[MessageKeywords]) -> AsyncTask[P, R]:
        """Return the same task with these fields for its messages: `id`, `key`, `tags`, …"""
        check_keywords("having", fields, MessageKeywords)
        joined: MessageKeywords = {**self._fields, **fields}
        return AsyncTask(self._tasks, self.topic, self.name, self._function, joined)

    def _body(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        call = TaskCall(self.name, args, kwargs)
        call.check(self._function)
        return call.body

    async def _sent(self, body: bytes, **due: Unpack[DueKeywords]) -> Sent:
        return await self._tasks.send(self.topic, body, **self._fields, **due)

    def __repr__(self) -> str:
        return f"<task {self.name} of topic {self.topic}>"


class AsyncTaskDecorator:
    """What `task` returns: makes a task of a function, and may have it called again and again."""

    def __init__(
        self,
        tasks: AsyncTasking,
        topic: str,
        name: str | None,
        on_error: OnError | None,
        options: TaskOptions,
        fields: MessageKeywords,
    ) -> None:
        self._tasks = tasks
        self._topic = topic
        self._name = name
        self._on_error = on_error
        self._options = options
        self._fields = fields
        self._repeats: list[Repeat] = []

    def every(
        self,
        when: str | timedelta,
        *,
        tz: str | ZoneInfo | None = None,
        name: str | None = None,
        shard: str | None = None,
        **rules: Unpack[RuleKeywords],
    ) -> AsyncTaskDecorator:
        """Have the task called, without arguments, by a schedule that each start of a worker puts.

        `when`: a cron expression in the zone `tz` (UTC), or an interval. `name`: that of the
        schedule; None: that of the task. Equal schedules stay as they are, so any number of workers
        may start. A schedule that the program no longer has stays until it is deleted. `shard`: the
        broker that has the schedule, if there are several. `rules` are those of `put_schedule`.
        """
        check_text("name", name)
        self._repeats.append(Repeat.of(when, tz, name, shard, rules))
        return self

    def __call__(self, function: Callable[P, Awaitable[R]]) -> AsyncTask[P, R]:
        """Make a task of the function."""
        name = self._name or getattr(function, "__name__", "")
        if not name:
            raise ValueError(f"{function!r} has no name: give the task one, name=…")
        check_handler(f"task {name}", function)
        task = AsyncTask(self._tasks, self._topic, name, function, self._fields)
        schedules = [(repeat, task._body()) for repeat in self._repeats]  # type: ignore[call-arg]
        self._tasks._add_task(self._topic, name, function, self._on_error, self._options)
        for repeat, body in schedules:
            self._tasks._add_schedule(self._topic, name, body, self._fields, repeat)
        return task


class AsyncTasking(AsyncTopicCalls, Declaring):
    """The `task` decorator, as a mixin; the inheriting class sends and runs consumers."""

    _task_topics: dict[str, _TaskTopic]
    """The functions of each topic that has tasks."""
    _beginnings: AsyncBeginnings

    @abstractmethod
    async def send(
        self, topic: str, body: bytes | str | None = None, **fields: Unpack[OneSendKeywords]
    ) -> Sent:
        """Send one message."""

    def task(
        self,
        topic: str,
        *,
        name: str | None = None,
        retries: int | None = None,
        on_error: OnError | None = None,
        **options: Unpack[TaskOptions],
    ) -> AsyncTaskDecorator:
        """Make a task of the decorated function: its calls are messages of the topic.

        `name`: the name of the task in messages; None: the name of the function. `retries`: how
        many times a failing call is repeated; None uses the topic's setting. `options` are those of
        `consumer`, except those of batches. Tasks of one topic share a consumer: only the first one
        may give options.
        """
        self._check_open()
        check_topic(topic)
        check_text("name", name)
        check_keywords("task", options, TaskOptions)
        if retries is not None:
            check_whole("retries", retries, 0)
        fields: MessageKeywords = {} if retries is None else {"max_retry": retries}
        return AsyncTaskDecorator(self, topic, name, on_error, options, fields)

    def _add_task(
        self,
        topic: str,
        name: str,
        function: Callable[..., Awaitable[Any]],
        on_error: OnError | None,
        options: TaskOptions,
    ) -> None:
        known = self._task_topics.get(topic)
        if known is None:
            known = _TaskTopic()
            consumer = Consumer(
                topic=topic,
                handler=known.handle,
                on_error=on_error,
                **options,
            )
            self._declare(consumer)
            self._task_topics[topic] = known
        elif given := [*options, *(["on_error"] if on_error else [])]:
            raise ValueError(
                f"the tasks of topic {topic!r} share a consumer: give its options "
                f"({', '.join(given)}) to the first of them"
            )
        if name in known.functions:
            raise ValueError(f"topic {topic!r} has a task {name!r} already: give this one a name=")
        known.functions[name] = function

    def _add_schedule(
        self, topic: str, task: str, body: bytes, fields: MessageKeywords, repeat: Repeat
    ) -> None:
        """Have each start of the worker put a schedule."""
        name = repeat.name or task
        known = self._task_topics[topic].schedules
        if name in known:
            raise ValueError(
                f"the tasks of topic {topic!r} have a schedule {name!r} already: give this one a "
                "name="
            )
        known.add(name)
        try:
            self.broker(repeat.shard)
        except ValueError as error:
            # At the declaration, not at the first start.
            raise ValueError(f"every, schedule {name!r} of topic {topic!r}: {error}") from None
        said: ScheduleKeywords = {**repeat.said, "max_retry": fields.get("max_retry")}

        async def put() -> object:
            broker = self.broker(repeat.shard)
            # The worker repeats it, and handles messages meanwhile.
            broker.at_once = True
            try:
                return await broker.put_schedule(topic, name, body.decode(), **said)
            except ApiError as error:
                error.args = (f"schedule {name!r} of task {task!r}, topic {topic!r}: {error}",)
                raise

        self._beginnings.add(f"cannot put schedule {name!r} of topic {topic!r}", put)


class _TaskTopic:
    """The tasks of one topic, and the handler of their messages."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.schedules: set[str] = set()

    async def handle(self, message: AsyncMessage) -> None:
        """Call the function that the message names."""
        call = TaskCall.of(message)
        function = self.functions.get(call.task)
        if function is None:
            # The sender may run a newer program than this one, and another worker may run it too.
            # So the message is retried, not rejected.
            raise LookupError(f"this program has no task {call.task!r} of topic {message.topic!r}")
        await function(*call.args, **call.kwargs)
