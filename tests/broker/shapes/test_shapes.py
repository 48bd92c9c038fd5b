"""Every shape of load under tight limits: no message is lost, early or altered, none is in excess.

A pairwise matrix of spread (an hour to ten years), topics, bulk or single sends, how the broker
ends, and what is done with the messages. Each case runs a real broker that has 256 descriptors and
little memory; its folder must stay small in bytes and in files. The history checker judges it, and
`delaylog verify` its folder.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.broker.shapes.pairs import pairs_of, pairwise
from tests.broker.shapes.shape import SHAPES, Shape, Size
from tests.broker.shapes.shape_run import ShapeRun
from tests.starts.tuned import BUSY
from tests.starts.warm import run_warm

SMALL = Size(
    topics=40,
    bulk=2_000,
    single=240,
    lookups=40,
    resident_kib_max=200 << 10,
    constants=BUSY,
)
"""Checkpoints, flushes and merges are provoked by small bounds."""

LARGE = Size(
    topics=10_000,
    bulk=200_000,
    single=20_000,
    lookups=2_000,
    resident_kib_max=400 << 10,
    constants=dict(zip(BUSY, (1_000, 1_000_000, 262_144), strict=True)),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_small(shape: Shape, tmp_path: Path) -> None:
    judge(shape, SMALL, tmp_path)


@pytest.mark.drill
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_large(shape: Shape, tmp_path: Path) -> None:
    judge(shape, LARGE, tmp_path)


def test_each_two_values_meet() -> None:
    dimensions = ((1, 2, 3, 4), (1, 2), (1, 2), (1, 2, 3))
    met = set().union(*map(pairs_of, pairwise(*dimensions)))
    for first, second in itertools.combinations(range(len(dimensions)), 2):
        for a, b in itertools.product(dimensions[first], dimensions[second]):
            assert ((first, a), (second, b)) in met
    assert len(SHAPES) < 16


def judge(shape: Shape, size: Size, folder: Path) -> None:
    run = ShapeRun(folder, shape, size)
    asyncio.run(run.run())
    faults = run.verdict()
    assert not faults, "\n".join(faults[:10])
    verified = run_warm("verify", run.data)
    assert verified.returncode == 0, verified.stdout + verified.stderr
