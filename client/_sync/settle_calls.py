"""Methods that settle received messages, made from the functions of `calls.verbs`.

They are methods of a message (`of_itself`), of clients and embedded brokers (`of_messages`), and of
plain clients (`of_receipts`), and take their parameters and documentation from the functions.

Made from client/_async/settle_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias

from delaylog.client.calls import verbs
from delaylog.client.calls.call import document
from delaylog.client.calls.verbs import Asked
from delaylog.client.models import Settled
from delaylog.client.shards.settlements import ToSettle, Verb

P = ParamSpec("P")
Results: TypeAlias = list[Settled]
Texts: TypeAlias = list[str]
_RECEIPTS: Final = (
    Parameter("topic", Parameter.POSITIONAL_ONLY, annotation=str),
    Parameter("receipts", Parameter.POSITIONAL_ONLY, annotation=Sequence[str]),
)


class One(Protocol):
    """A message."""

    def _settle(self, verb: Verb, **times: Any) -> Settled: ...


class Many(Protocol):
    """A client or an embedded broker."""

    def _settle(self, verb: Verb, messages: ToSettle, **times: Any) -> Results: ...


class Plain(Protocol):
    """A plain client."""

    def _settle(self, topic: str, verb: Verb, receipts: Sequence[str], **times: Any) -> Texts: ...


def of_itself(
    make: Callable[Concatenate[ToSettle, P], Asked],
) -> Callable[Concatenate[One, P], Settled]:
    """The method of a message."""

    def method(self: One, /, *args: P.args, **keywords: P.kwargs) -> Settled:
        verb, _, times = make((), *args, **keywords)
        return self._settle(verb, **times)

    document(method, make, list(signature(make).parameters.values())[1:], "Settled")
    return method


def of_messages(
    make: Callable[P, Asked],
) -> Callable[Concatenate[Many, P], Results]:
    """The method of a client: a result for each message."""

    def method(self: Many, /, *args: P.args, **keywords: P.kwargs) -> Results:
        verb, messages, times = make(*args, **keywords)
        return self._settle(verb, messages, **times)

    document(method, make, list(signature(make).parameters.values()), "list[Settled]")
    return method


def of_receipts(
    make: Callable[Concatenate[ToSettle, P], Asked],
) -> Callable[Concatenate[Plain, str, Sequence[str], P], Texts]:
    """The method of a plain client. Per receipt: done, gone (the lease had ended) or unknown."""

    def method(
        self: Plain,
        topic: str,
        receipts: Sequence[str],
        /,
        *args: P.args,
        **keywords: P.kwargs,
    ) -> Texts:
        verb, _, times = make((), *args, **keywords)
        return self._settle(topic, verb, receipts, **times)

    parameters = list(signature(make).parameters.values())[1:]
    document(method, make, [*_RECEIPTS, *parameters], "list[str]")
    return method


class SettleCalls(ABC):
    """The calls; a subclass carries them out in `_settle`."""

    ack = of_messages(verbs.ack)
    nack = of_messages(verbs.nack)
    reject = of_messages(verbs.reject)
    release = of_messages(verbs.release)
    extend = of_messages(verbs.extend)
    begin = of_messages(verbs.begin)

    @abstractmethod
    def _settle(self, verb: Verb, messages: ToSettle, **times: Any) -> Results:
        """Settle messages; `times` are SettleTimes and SettleLimits."""
