"""A backend of Django's tasks that keeps them in the delay log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils import timezone
from django.utils.module_loading import import_string
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import Task, TaskContext, TaskResult, TaskResultStatus
from django_tasks.signals import task_enqueued, task_finished, task_started

from delaylog import Client, Message


class DelaylogBackend(BaseTaskBackend):
    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.client = Client(*self.options.get("ENDPOINTS", ()))

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        self.validate_task(task)
        call = {"task": task.module_path, "args": list(args), "kwargs": dict(kwargs)}
        sent = self.client.send(
            task.queue_name, json=call, at=task.run_after, priority=task.priority
        )
        result = self.result_of(task, sent.id, call)
        task_enqueued.send(type(self), task_result=result)
        return result

    def run(self, message: Message) -> None:
        call = message.json()
        task = import_string(call["task"]).using(queue_name=message.topic, backend=self.alias)
        result = self.result_of(task, message.id, call, message.attempts)
        task_started.send(type(self), task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        task.call(*context, *call["args"], **call["kwargs"])
        result = replace(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
        task_finished.send(type(self), task_result=result)

    def result_of(
        self, task: Task[..., Any], id: str, call: dict[str, Any], attempts: int = 0
    ) -> TaskResult[Any]:
        now = timezone.now()
        return TaskResult(
            task=task,
            id=id,
            status=TaskResultStatus.RUNNING if attempts else TaskResultStatus.READY,
            enqueued_at=None if attempts else now,
            started_at=now if attempts else None,
            finished_at=None,
            last_attempted_at=now if attempts else None,
            args=call["args"],
            kwargs=call["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=["run_tasks"] * attempts,
        )
