"""Declaring: what objects with handlers have in common, and when nothing may run them.

A worker declares consumers, and its client the tasks; `delaylog worker` imports the module of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from delaylog.client.workers.consumer import Consumer


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
