"""What leaves serve over HTTP: APIs with paths of their own, files, parts of the native API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.answers import Answer, AnyAnswer, Stream
from delaylog.broker.calls.operations import Handler
from delaylog.broker.calls.routes import Route
from delaylog.broker.host.waiters import OpenStreams
from delaylog.broker.web.http_context import HttpContext
from delaylog.broker.web.openapi import Described
from delaylog.contract.calls.call import Right

ApiHandler: TypeAlias = Callable[[HttpContext], Awaitable[Any]]
Read: TypeAlias = Callable[[str], Awaitable[AnyAnswer]]
"""Answers a GET of a path with its query as its caller may read it, also if it refuses it."""


class MountedApi(Protocol):
    """An API with paths, parameters and answers of its own.

    Its clients follow no redirect, and unknown query parameters are accepted.
    """

    name: str
    """As metrics and the audit log name it."""
    prefix: str
    """All paths below it belong to this API."""
    public: frozenset[str]
    """Paths that need no caller: they say whether the node is up, and nothing else."""
    leaderless: frozenset[str]
    """Paths whose reads are answered without a leader."""
    local: tuple[str, ...]
    """Prefixes of paths about the node itself, which every node answers."""
    switches: tuple[str, ...]
    """Prefixes of paths that change something by GET too."""

    def start(self) -> None:
        """Called before the first request."""

    async def stop(self) -> None:
        """Called before the connections are closed."""

    def route(self, path: str, method: str, caller: Caller) -> ApiHandler:
        """The handler of a path. Raises a Problem if there is none, or the caller may not call
        it.
        """

    def right_of(self, path: str) -> Right | None:
        """The right that a call needs; None if every caller, or nobody, may make it."""

    async def carry(self, ctx: HttpContext, path: str) -> Answer:
        """Answer a call on a node that does not lead."""

    def described(self) -> Described:
        """Its part of the OpenAPI document."""


class Files(NamedTuple):
    """Files for browsers, which need no caller."""

    home: str
    """Path of the first page."""
    answer_of: Callable[[str, str, Mapping[str, str]], Answer | None]
    """The answer to a method, a path without a query, and headers; None: it asks for another."""


class ReadsPage(NamedTuple):
    """A page that answers by reads of other paths.

    Every principal may open it, also without a leader: each read is decided on by itself.
    """

    path: str
    answer_of: Callable[[str, Read, OpenStreams], Stream]
    """The answer to a query. Raises a Problem."""
    described: Described


@dataclass(frozen=True, slots=True)
class Mounts:
    """All of it."""

    apis: tuple[MountedApi, ...] = ()
    files: tuple[Files, ...] = ()
    calls: Mapping[str, Handler] = field(default_factory=dict)
    """Handlers of native calls, by the names of the calls."""
    pages: Mapping[str, ReadsPage] = field(default_factory=dict)
    """By path."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The paths of all APIs."""
        return tuple(api.prefix for api in self.apis)

    def api_of(self, path: str) -> MountedApi | None:
        """The API that has this path."""
        return next((api for api in self.apis if path.startswith(api.prefix)), None)

    def carried(self, route: Route) -> Route:
        """A route with the handler of the leaf that carries its call out, if one does."""
        handler = self.calls.get(route.call.name)
        return route if handler is None else route._replace(handler=handler)

    def described(self) -> list[Described]:
        """What they add to the OpenAPI document."""
        pages = [page.described for page in self.pages.values()]
        return pages + [api.described() for api in self.apis]
