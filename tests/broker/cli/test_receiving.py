"""What `delaylog receive` asks the broker for."""

from __future__ import annotations

import pytest

from delaylog.broker.cli.messages.leases import asked
from delaylog.broker.cli.parser import make_parser


@pytest.mark.parametrize(
    ("words", "wait_ms"),
    [
        ([], None),
        (["--wait", "5s"], 5_000),
        (["--follow"], 20_000),
        (["--follow", "--wait", "0"], 20_000),
        (["--follow", "--wait", "1s"], 1_000),
    ],
)
def test_a_receive_that_goes_on_waits(words: list[str], wait_ms: int | None) -> None:
    """It would call the broker without a pause otherwise."""
    args = make_parser("receive").parse_args(["receive", "t", *words])
    assert asked(args).get("wait_ms") == wait_ms
