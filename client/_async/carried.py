"""Turns functions of `client.calls`, which build a call, into methods that carry it out.

A method takes its parameters and its documentation from the function, so neither is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from inspect import Parameter, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delaylog.client._async.link import AsyncLink
from delaylog.client.calls.call import Call, Places, document
from delaylog.client.errors import ClientError
from delaylog.client.shards.answers import OverShards, Shape

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCarrier(Protocol):
    """A client of one broker."""

    _places: Places

    async def _carry(self, call: Call[T]) -> T: ...


class AsyncShards(Protocol):
    """A client of one broker, or of several brokers as shards."""

    _links: Sequence[AsyncLink]
    _places: Places


def carried(
    make: Callable[Concatenate[Places, P], Call[T]],
) -> Callable[Concatenate[AsyncCarrier, P], Coroutine[Any, Any, T]]:
    """The method of a call in a namespace: the first parameter of `make` is `Places`."""

    async def method(self: AsyncCarrier, /, *args: P.args, **members: P.kwargs) -> T:
        return await self._carry(make(self._places, *args, **members))

    document(method, make, list(signature(make).parameters.values())[1:], _answer_of(make))
    return method


def carried_anywhere(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncCarrier, P], Coroutine[Any, Any, T]]:
    """The method of a call outside namespaces: `make` takes no `Places`."""

    async def method(self: AsyncCarrier, /, *args: P.args, **members: P.kwargs) -> T:
        return await self._carry(make(*args, **members))

    document(method, make, list(signature(make).parameters.values()), _answer_of(make))
    return method


def on_all_shards(
    make: Callable[Concatenate[Places, P], Call[Shape]],
    read: Callable[[Sequence[Shape]], T],
    *,
    go_on: bool = True,
    may_lack: bool = True,
) -> Callable[Concatenate[AsyncShards, P], Coroutine[Any, Any, T]]:
    """The method that carries a call out on every shard in turn and combines the answers by `read`;
    see OverShards for `go_on` and `may_lack`.
    """

    shown = signature(make)

    async def method(self: AsyncShards, /, *args: P.args, **members: P.kwargs) -> T:
        call = make(self._places, *args, **members)
        named = shown.bind(self._places, *args, **members).arguments
        about = [repr(named[name]) for name in ("group", "topic") if named.get(name) is not None]
        what = " of ".join([make.__name__, *about])
        shards = OverShards(
            what, [link.name for link in self._links], go_on=go_on, may_lack=may_lack
        )
        for link in self._links:
            try:
                shards.answered(link.name, await link.carry(call))
            except ClientError as error:
                if not shards.failed(link.name, error):
                    break
        return shards.joined(read)

    answer = read.__annotations__.get("return", Parameter.empty)
    document(method, make, list(shown.parameters.values())[1:], answer)
    return method


def _answer_of(make: Callable[..., Any]) -> str:
    """The type of the call's answer, from the annotation of its function."""
    annotation: str = make.__annotations__["return"]
    return annotation.removeprefix("Call[").removesuffix("]")
