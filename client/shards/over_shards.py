"""Collects the answers and errors of one call on all shards, and combines them.

The one rule: an error of one shard does not hide the answers of the others. ShardsFailed holds the
outcome at each shard. If no shard answered and all errors have one class, the first is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from delaylog.client.calls.call import UNREADABLE
from delaylog.client.errors import AnswerLost, ClientError, NotFound, ShardsFailed

T = TypeVar("T")
Shape: TypeAlias = dict[str, Any]


class OverShards:
    """The answers to one call, shard by shard.

    `go_on`: whether the next shard is asked after one has failed. False fits calls whose refusal
    by one shard means that they are wrong for all. `may_lack`: whether a shard without the topic
    or group is skipped, unless no shard has it.
    """

    def __init__(
        self, what: str, names: Sequence[str], *, go_on: bool = True, may_lack: bool = True
    ) -> None:
        self._what = what
        self._names = names
        self._go_on = go_on
        self._may_lack = may_lack
        self._answers: dict[str, Shape] = {}
        self._lacking: dict[str, ClientError] = {}
        self._errors: dict[str, ClientError] = {}

    def answered(self, name: str, shape: Shape) -> None:
        """Add the answer of a shard."""
        self._answers[name] = shape

    def failed(self, name: str, error: ClientError) -> bool:
        """Add the error of a shard; returns whether to go on with the next one."""
        if self._may_lack and isinstance(error, NotFound):
            self._lacking[name] = error
            return True
        self._errors[name] = error
        return self._go_on

    def joined(self, read: Callable[[Sequence[Shape]], T]) -> T:
        """The answers combined by `read`. Raises ShardsFailed, or the error if all are alike."""
        found = list(self._answers.values())
        wrong = self._errors or (self._lacking if not found else {})
        if not wrong:
            try:
                return read(found)
            except UNREADABLE as error:
                raise AnswerLost(f"the answer cannot be read: {error}") from error
        failed = self._errors | self._lacking
        if not found and len({type(error) for error in failed.values()}) == 1:
            raise next(iter(failed.values()))
        answers = {name: read([shape]) for name, shape in self._answers.items()}
        heard = answers.keys() | failed.keys()
        raise ShardsFailed(
            self._what, failed, answers, [name for name in self._names if name not in heard]
        )


def list_failed(kind: str, topic: str, name: str, error: ClientError) -> ShardsFailed:
    """The error that ends a merged list: the next message of the failed shard is unknown."""
    what = f"the list of {kind} of {topic!r} (shard= lists one shard alone)"
    return ShardsFailed(what, {name: error}, {})
