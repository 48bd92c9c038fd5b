"""Every metric that a page or a file of ops/ names is in the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from delaylog.broker.host.watch.metrics_table import METRICS

ROOT: Final = Path(__file__).parents[2]
NAMING: Final = [
    path
    for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("ops/**/*"))
    if path.suffix in {".md", ".json", ".yaml", ".yml", ".toml"}
]
NAME: Final = re.compile(r"\bdelaylog_[a-z_]+[a-z]\b")
PARTS: Final = ("_bucket", "_count", "_sum")
"""Ends of the samples of a histogram."""
NOT_METRICS: Final = (
    "delaylog_client_",
    "delaylog_segments",
    "delaylog_broker",
    "delaylog_embedded",
    "delaylog_delay_s",
    "delaylog_priority",
)
"""Metrics of the SDK, and other names of that form, such as labels of taskiq."""


def unknown(text: str) -> set[str]:
    """Names of the form of a metric that are none."""
    found = {name for name in NAME.findall(text) if not name.startswith(NOT_METRICS)}
    known = {*METRICS, *(row.name.removesuffix("_total") for row in METRICS.values())}
    plain = {name: re.sub(f"({'|'.join(PARTS)})$", "", name) for name in found}
    return {name for name in found if name not in known and plain[name] not in known}


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.name)
def test_what_files_name_exists(path: Path) -> None:
    assert not unknown(path.read_text())


def test_a_name_that_is_no_metric_is_found() -> None:
    assert unknown("rate(delaylog_sent_total[5m]) + delaylog_sents_total") == {
        "delaylog_sents_total"
    }
