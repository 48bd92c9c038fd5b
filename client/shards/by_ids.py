"""One call about ids on several shards: each id is asked for until a shard knows it.

The result of one id is never lost because a shard failed on another. If no shard answered and all
failed with the same kind of error, that error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from delaylog.client.errors import ClientError, EachFailed, NotFound

R = TypeVar("R")


class ByIds(Generic[R]):
    """The results of the ids of one call so far.

    `unknown` is the result for an id that a shard does not have; the next shard is asked for it.
    """

    def __init__(self, count: int, unknown: R, failed: Callable[[Sequence[Any]], EachFailed]):
        """`failed` builds the exception for results that contain errors."""
        self._unknown = unknown
        self._make = failed
        self._results = [unknown] * count
        self._answers = 0
        self._lacking: list[NotFound] = []
        self._errors: dict[int, ClientError] = {}
        """By place: the error of the first shard that may have the id."""

    def left(self, asked: Iterable[int]) -> list[int]:
        """The places among `asked` that have no result yet."""
        return [place for place in asked if self._results[place] == self._unknown]

    def answered(self, places: Iterable[int], results: Iterable[R]) -> None:
        """Add the results of a shard for the ids at these places."""
        self._answers += 1
        for place, result in zip(places, results, strict=True):
            self._results[place] = result

    def failed(self, places: Iterable[int], error: ClientError) -> None:
        """Add the error of a shard. NotFound counts as unknown, unless no shard has the topic."""
        if isinstance(error, NotFound):
            self._lacking.append(error)
            return
        for place in places:
            self._errors.setdefault(place, error)

    def results(self) -> list[R]:
        """The results in the order of the ids. Raises if some are missing because of errors."""
        wrong = {place: self._errors[place] for place in self.left(self._errors)}
        if not self._answers and (self._errors or self._lacking):
            met = [*self._errors.values(), *self._lacking]
            if len({type(error) for error in met}) == 1:
                raise met[0]
        if wrong:
            known = enumerate(self._results)
            raise self._make([wrong.get(place, result) for place, result in known])
        return self._results
