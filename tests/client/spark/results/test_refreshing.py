"""A result of a load that was not published completely learns its counts later."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from pyspark_delaylog.errors import BrokerError
from pyspark_delaylog.load_result import LoadResult
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker, FakeTransaction

ROWS = 60_000


def committed(broker: FakeBroker, options_of: OptionsOf, **options: str) -> LoadResult:
    """The result at the commit of a load of which nothing is published yet."""
    broker.transactions["load"] = FakeTransaction(expires_at_ms=0, state="committed", rows=ROWS)
    connection = options_of(**options).connection
    return LoadResult("load", "committed", ROWS, bytes=7, connection=connection)


def test_counts_grow_until_all_rows_are_published(
    broker: FakeBroker, options_of: OptionsOf
) -> None:
    broker.unpublished, broker.kept = 20_000, 10
    first = committed(broker, options_of)
    some = first.refresh()
    assert not first.complete
    assert not some.complete
    assert (some.published, some.added, some.published_at_ms) == (40_000, 39_990, None)
    broker.unpublished = 0
    whole = some.refresh(wait=True)
    assert whole.complete
    assert (whole.rows, whole.added, whole.results["kept"]) == (ROWS, ROWS - 10, 10)
    assert (whole.published_at_ms or 0) > (whole.committed_at_ms or 0)
    assert (whole.bytes, whole.name) == (7, "load"), "what was known stays"
    broker.transactions.clear()
    assert whole.refresh() is whole, "a complete result asks nobody"


def test_the_token_is_not_part_of_a_result(broker: FakeBroker, options_of: OptionsOf) -> None:
    """A result is kept in a file, so the caller gives the token again."""
    broker.token = "a-secret"
    first = committed(broker, options_of, token="a-secret")
    assert "a-secret" not in json.dumps(asdict(first)) + repr(first)
    with pytest.raises(BrokerError, match="401"):
        first.refresh()
    assert first.refresh(token="a-secret").complete


def test_it_reaches_the_broker_as_the_load_did(options_of: OptionsOf) -> None:
    """By the same files, whose names are no secrets, and at all of its members."""
    given = {
        "endpoint": "https://a:1,https://b:1",
        "tokenFile": "/t",
        "caFile": "/ca",
        "clientCert": "/cert",
        "clientKey": "/key",
        "insecurePlainToken": "true",
    }
    assert options_of(**given).connection == given
    assert list(options_of(tokenFile="").connection) == ["endpoint"]
