"""What became of a load, asked by its name without beginning a transaction."""

from __future__ import annotations

import pytest

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import RefusedError
from pyspark_delaylog.transactions import Transactions
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeTransaction
from tests.client.spark.misbehaving_server import Fault


@pytest.mark.parametrize(
    ("there", "last"),
    [
        ({}, None),
        ({"load": "open"}, "load"),
        ({"load": "committed"}, "load"),
        ({"load": "aborted"}, "load"),
        ({"load": "aborted", "load.r1": "expired", "load.r2": "committed"}, "load.r2"),
        ({"load": "expired", "load.r1": "open"}, "load.r1"),
        ({"load.r1": "committed"}, None),
    ],
)
def test_the_last_run_of_a_load(
    broker: FakeBroker, options_of: OptionsOf, there: dict[str, str], last: str | None
) -> None:
    """As `begin` looks for it: the last line is of a name that was forgotten, and begins anew."""
    broker.transactions = {name: FakeTransaction(state, 7) for name, state in there.items()}
    options = options_of()
    transactions = Transactions(options, BrokerHttp(options))
    found = transactions.last_run("load")
    assert (found and found["transaction"]) == last
    assert sorted(broker.transactions) == sorted(there)
    begun = transactions.begin("load")
    assert (begun.state == "committed") == ("committed" in there.values() and last is not None)


def test_another_refusal_is_shown(broker: FakeBroker, options_of: OptionsOf) -> None:
    broker.fault = lambda call: Fault(403)
    options = options_of()
    with pytest.raises(RefusedError, match="403"):
        Transactions(options, BrokerHttp(options)).last_run("load")
