"""Evaluates the part of PromQL that the rules use, on series that a test makes up.

`promql_parser` reads the expressions. Simpler than Prometheus: `rate` and `increase` extrapolate
nothing, and a vector may have many series on the left side of a match only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import promql_parser

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Points: TypeAlias = list[tuple[float, float]]
LOOK_BACK_S: Final = 300.0

_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else float("nan"),
}
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}
_AGGREGATES: Final[dict[str, Callable[[Iterable[float]], float]]] = {"sum": sum, "max": max}


class Series:
    """Points of all series, in the order of their times."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[Labels, Points]] = {}

    def add(self, at_s: float, name: str, labels: Labels, value: float) -> None:
        self._by_name.setdefault(name, {}).setdefault(labels, []).append((at_s, value))

    def since(self, selector: Any, from_s: float, at_s: float) -> dict[Labels, Points]:
        """The points of the selected series after `from_s` and up to `at_s`."""
        out = {}
        for labels, points in self._by_name.get(selector.name, {}).items():
            if all(_matches(each, dict(labels)) for each in selector.matchers.matchers):
                found = [point for point in points if from_s < point[0] <= at_s]
                if found:
                    out[labels] = found
        return out

    def evaluate(self, node: Any, at_s: float) -> Any:
        """The vector or number of a parsed expression at a time."""
        match type(node).__name__:
            case "NumberLiteral":
                return node.val
            case "ParenExpr":
                return self.evaluate(node.expr, at_s)
            case "VectorSelector":
                found = self.since(node, at_s - LOOK_BACK_S, at_s)
                return {labels: points[-1][1] for labels, points in found.items()}
            case "AggregateExpr":
                return self._aggregate(node, at_s)
            case "BinaryExpr":
                return self._binary(node, at_s)
            case "Call":
                return self._call(node, at_s)
        raise ValueError(f"no rule has had a {type(node).__name__} before: evaluate it here, too")

    def _aggregate(self, node: Any, at_s: float) -> Vector:
        assert node.modifier.type == promql_parser.AggModifierType.By
        groups: dict[Labels, list[float]] = {}
        for labels, value in self.evaluate(node.expr, at_s).items():
            groups.setdefault(_only(labels, node.modifier.labels), []).append(value)
        return {labels: _AGGREGATES[str(node.op)](each) for labels, each in groups.items()}

    def _call(self, node: Any, at_s: float) -> Vector:
        name, last = node.func.name, node.args[-1]
        if name == "abs":
            return {labels: abs(value) for labels, value in self.evaluate(last, at_s).items()}
        window = node.args[0]
        seconds = window.range.total_seconds()
        found = self.since(window.vector_selector, at_s - seconds, at_s)
        found = {labels: points for labels, points in found.items() if len(points) > 1}
        if name == "predict_linear":
            ahead_s = self.evaluate(last, at_s)
            return {labels: _line(points, at_s + ahead_s) for labels, points in found.items()}
        by = {"rate": seconds, "increase": 1.0}[name]
        return {labels: _grown(points) / by for labels, points in found.items()}

    def _binary(self, node: Any, at_s: float) -> Any:
        op = str(node.op)
        left, right = self.evaluate(node.lhs, at_s), self.evaluate(node.rhs, at_s)
        if isinstance(left, float) and isinstance(right, float):
            return _ARITHMETIC[op](left, right)
        key = _matching(node.modifier)
        if op in ("and", "unless", "or"):
            there = {key(labels) for labels in right}
            if op == "or":
                mine = {key(labels) for labels in left}
                more = {labels: value for labels, value in right.items() if key(labels) not in mine}
                return left | more
            keep = op == "and"
            return {
                labels: value for labels, value in left.items() if (key(labels) in there) == keep
            }
        if isinstance(left, float):
            return {labels: _ARITHMETIC[op](left, value) for labels, value in right.items()}
        pairs = []
        others = None if isinstance(right, float) else {key(each): right[each] for each in right}
        for labels, value in left.items():
            other = right if others is None else others.get(key(labels))
            if other is not None:
                pairs.append((labels, value, other))
        if op in _COMPARISONS:
            return {
                labels: value for labels, value, other in pairs if _COMPARISONS[op](value, other)
            }
        if others is not None:
            pairs = [(key(labels), value, other) for labels, value, other in pairs]
        return {labels: _ARITHMETIC[op](value, other) for labels, value, other in pairs}


def _matches(matcher: Any, labels: dict[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    if matcher.op == promql_parser.MatchOp.Equal:
        return bool(value == matcher.value)
    assert matcher.op == promql_parser.MatchOp.Re
    return re.fullmatch(matcher.value, value) is not None


def _only(labels: Labels, names: Iterable[str]) -> Labels:
    wanted = set(names)
    return frozenset(each for each in labels if each[0] in wanted)


def _matching(modifier: Any) -> Callable[[Labels], Labels]:
    """The labels by which two vectors are matched."""
    matching = None if modifier is None else modifier.matching
    if matching is None:
        return lambda labels: labels
    names = set(matching.labels)
    include = matching.type == promql_parser.LabelModifierType.Include
    return lambda labels: frozenset(each for each in labels if (each[0] in names) == include)


def _grown(points: Points) -> float:
    """The growth of a counter, which may begin again."""
    steps = pairwise(value for _, value in points)
    return sum(now - before if now >= before else now for before, now in steps)


def _line(points: Points, at_s: float) -> float:
    times, values = np.array(points).T
    return float(np.polyfit(times - at_s, values, 1)[1])
