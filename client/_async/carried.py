"""Methods made from the calls of `client.calls`.

The one rule: a method has the parameters and the documentation of its call, so neither is written
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delaylog.client._async.link import AsyncLink
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.errors import ClientError
from delaylog.client.over_shards import OverShards, Shape

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCarrier(Protocol):
    """A client of one broker."""

    _places: Places

    async def _carry(self, call: Call[T]) -> T: ...


class AsyncShards(Protocol):
    """A client of one broker or of several as shards."""

    _links: Sequence[AsyncLink]
    _places: Places


def carried(
    make: Callable[Concatenate[Places, P], Call[T]],
) -> Callable[Concatenate[AsyncCarrier, P], Coroutine[Any, Any, T]]:
    """The method of a call that needs to know the namespace."""

    @wraps(make)
    async def method(self: AsyncCarrier, /, *args: P.args, **members: P.kwargs) -> T:
        return await self._carry(make(self._places, *args, **members))

    return method


def carried_anywhere(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncCarrier, P], Coroutine[Any, Any, T]]:
    """The method of a call that belongs to no namespace."""

    async def method(self: AsyncCarrier, /, *args: P.args, **members: P.kwargs) -> T:
        return await self._carry(make(*args, **members))

    method.__doc__ = make.__doc__
    return method


def on_all_shards(
    make: Callable[Concatenate[Places, P], Call[Shape]],
    read: Callable[[Sequence[Shape]], T],
    *,
    go_on: bool = True,
    may_lack: bool = True,
) -> Callable[Concatenate[AsyncShards, P], Coroutine[Any, Any, T]]:
    """The method that asks every shard and reads their answers together; see OverShards."""

    @wraps(make)
    async def method(self: AsyncShards, /, *args: P.args, **members: P.kwargs) -> T:
        named = signature(make).bind(self._places, *args, **members).arguments
        what = " of ".join(
            [make.__name__, *(repr(named[name]) for name in ("group", "topic") if name in named)]
        )
        said = OverShards(what, [link.name for link in self._links], go_on=go_on, may_lack=may_lack)
        call = make(self._places, *args, **members)
        for link in self._links:
            try:
                said.answered(link.name, await link.carry(call))
            except ClientError as error:
                if not said.failed(link.name, error):
                    break
        return said.joined(read)

    return method
