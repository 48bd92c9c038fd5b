"""What became of a load, by the name it has: asked without beginning anything."""

from __future__ import annotations

import pytest

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import RefusedError
from pyspark_delaylog.transactions import Transactions
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeTransaction
from tests.client.spark.misbehaving_server import Fault


@pytest.mark.parametrize(
    ("there", "rows"),
    [
        ({}, None),
        ({"load": "open"}, None),
        ({"load": "committed"}, 7),
        ({"load": "aborted"}, None),
        ({"load": "aborted", "load.r1": "expired", "load.r2": "committed"}, 7),
        ({"load": "expired", "load.r1": "open"}, None),
        ({"load.r1": "committed"}, None),
    ],
)
def test_rows_of_the_run_that_was_committed(
    broker: FakeBroker, options_of: OptionsOf, there: dict[str, str], rows: int | None
) -> None:
    """As `begin` looks for it: the last line is of a name that was forgotten, and begins anew."""
    broker.transactions = {name: FakeTransaction(state, 7) for name, state in there.items()}
    options = options_of()
    transactions = Transactions(options, BrokerHttp(options))
    assert transactions.committed_rows("load") == rows
    assert sorted(broker.transactions) == sorted(there)
    assert (transactions.begin("load").state == "committed") == (rows is not None)


def test_another_refusal_is_shown(broker: FakeBroker, options_of: OptionsOf) -> None:
    broker.fault = lambda call: Fault(403)
    options = options_of()
    with pytest.raises(RefusedError, match="403"):
        Transactions(options, BrokerHttp(options)).committed_rows("load")
