"""One call about ids over shards, each id looked for until a shard knows it.

The one rule: what became of one id is never lost behind a shard that could not say it of another.
Only where no shard said anything, and all for one reason, it is that error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from delaylog.client.errors import ClientError, EachFailed, NotFound

R = TypeVar("R")


class ByIds(Generic[R]):
    """What is known of each id of a call so far.

    `unknown` is the result of an id that a shard does not have: the next one is asked for it.
    """

    def __init__(self, count: int, unknown: R, failed: Callable[[Sequence[Any]], EachFailed]):
        """`failed` makes the error of results of which some are errors."""
        self._unknown = unknown
        self._make = failed
        self._results = [unknown] * count
        self._answers = 0
        self._lacking: list[NotFound] = []
        self._errors: dict[int, ClientError] = {}
        """Of places: of the first shard that may have had that id, and could not say so."""

    def left(self, asked: Iterable[int]) -> list[int]:
        """The places among `asked` of which nothing is known yet."""
        return [place for place in asked if self._results[place] == self._unknown]

    def answered(self, places: Iterable[int], results: Iterable[R]) -> None:
        """A shard has said what became of the ids at these places."""
        self._answers += 1
        for place, result in zip(places, results, strict=True):
            self._results[place] = result

    def failed(self, places: Iterable[int], error: ClientError) -> None:
        """A shard has not. One without the topic knows none of them, unless none has it."""
        if isinstance(error, NotFound):
            self._lacking.append(error)
            return
        for place in places:
            self._errors.setdefault(place, error)

    def results(self) -> list[R]:
        """In the order of the ids. Raises what went wrong."""
        wrong = {place: self._errors[place] for place in self.left(self._errors)}
        if not self._answers and (self._errors or self._lacking):
            met = [*self._errors.values(), *self._lacking]
            if len({type(error) for error in met}) == 1:
                raise met[0]
        if wrong:
            known = enumerate(self._results)
            raise self._make([wrong.get(place, result) for place, result in known])
        return self._results
