"""Finds an application by its name, `module:attribute`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Application(Protocol):
    """A client or an embedded broker with consumers or tasks."""

    def connected(self) -> bool:
        """Whether its consumers are connected."""

    def run(self) -> Any:
        """Handle messages until a signal; a coroutine function if it is of asyncio."""


class LoadError(Exception):
    """There is no application of that name."""


def load(name: str) -> Application:
    """Import the application. LoadError, or whatever its module raises.

    The attribute is an application, or a function without arguments that returns one.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise LoadError(f"an application is given as MODULE:NAME, not {name!r}")
    try:
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
    return application


def is_application(found: object) -> bool:
    """Whether it has the methods of a client that runs consumers."""
    return not isinstance(found, type) and all(
        callable(getattr(found, method, None)) for method in ("run", "connected", "consumer")
    )


def _made(function: Callable[[], Any], name: str) -> Any:
    if isinstance(function, type) or inspect.iscoroutinefunction(function):
        raise LoadError(f"{name} is neither a client nor a function that returns one")
    return function()
