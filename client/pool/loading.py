"""Finds an application by its name, `module:attribute`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from delaylog.client.errors import ClientClosed
from delaylog.client.workers.declaring import Declaring, below_main, importing


class Application(Protocol):
    """A client or an embedded broker with consumers or tasks."""

    def connected(self) -> bool:
        """Whether its consumers are connected."""

    def run(self) -> Any:
        """Handle messages until a signal; a coroutine function if it is of asyncio."""

    def close(self) -> Any:
        """Release what it has; a coroutine function if it is of asyncio."""

    def _check_open(self) -> None: ...

    def _stop_limit_s(self) -> float: ...


class LoadError(Exception):
    """There is no application of that name."""


def load(name: str) -> Application:
    """Import the application. LoadError, or whatever its module raises.

    The attribute is an application, or a function without arguments that returns one. Neither may
    be closed, and the module may run no consumers: that is what it is imported for.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise LoadError(f"an application is given as MODULE:NAME, not {name!r}")
    try:
        with importing(module_name):
            found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that this one imports may be missing, too: that is an error of the program.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise LoadError(
            f"there is no module {error.name!r} in this folder or environment"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise LoadError(f"{module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if not is_application(found) and callable(found):
        found = _made(found, name)
    if not is_application(found):
        raise LoadError(f"{name} is a {type(found).__name__}, not a client with consumers")
    application: Application = found
    try:
        application._check_open()
    except ClientClosed:
        raise LoadError(below_main(module_name)) from None
    return application


def is_application(found: object) -> bool:
    """Whether it is a client, or an embedded broker, that runs consumers."""
    return isinstance(found, Declaring) and callable(getattr(found, "run", None))


def _made(function: Callable[[], Any], name: str) -> Any:
    if isinstance(function, type) or inspect.iscoroutinefunction(function):
        raise LoadError(f"{name} is neither a client nor a function that returns one")
    return function()
