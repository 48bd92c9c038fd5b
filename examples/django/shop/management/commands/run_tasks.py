"""`python manage.py run_tasks`: the worker of the default backend."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections
from django_tasks import task_backends
from shop.backend import DelaylogBackend

from delaylog import Message, NotFound, TopicSettings


class Command(BaseCommand):
    help = "Run the tasks of the default backend until SIGTERM or SIGINT."

    def handle(self, *args: Any, **options: Any) -> None:
        backend = task_backends["default"]
        assert isinstance(backend, DelaylogBackend)

        def run(message: Message) -> None:
            close_old_connections()
            try:
                backend.run(message)
            finally:
                close_old_connections()

        with backend.client as client:
            for queue in backend.queues:
                try:
                    client.update_topic(queue, order="priority")
                except NotFound:
                    client.put_topic(queue, TopicSettings(order="priority"))
                client.consumer(queue)(run)
            client.run()
