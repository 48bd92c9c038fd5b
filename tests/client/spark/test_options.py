"""The options: what each is parsed to, and that every error names its option and the way out."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.options import OPTION_NAMES, Options

BASE = {"endpoint": "http://h:1", "topic": "t"}


def test_only_the_endpoint_has_no_default() -> None:
    options = Options.parse({"endpoint": "http://h:1/"})
    assert options.endpoints == ("http://h:1",)
    assert options.staged
    assert (options.batch_rows, options.batch_bytes) == (10_000, 8 * 1024 * 1024)
    assert (options.retry_for_ms, options.retry_wait_ms) == (300_000, 50)
    assert (options.namespace, options.delay_column) == ("default", "deliver_at")
    assert options.redelivers
    assert not options.dead_letter
    nothing = (options.compression, options.rows_per_second_max, options.delay_ms, options.group)
    assert nothing == (None, None, None, None)


def test_names_and_words_are_taken_in_any_case() -> None:
    given = {
        "ENDPOINT": "http://h:1",
        "batchsize": "7",
        "DELIVERY": "Direct",
        "onerror": "DEADLETTER",
    }
    options = Options.parse({**given, "Topic": "t"})
    assert (options.batch_rows, options.staged, options.dead_letter) == (7, False, True)
    assert options.dead_letter_topic == "t.rejected"


def test_a_query_of_an_endpoint_is_not_shown() -> None:
    """It may hold a token."""
    with pytest.raises(OptionError, match=r"'http://a\?…' is not a base URL") as caught:
        Options.parse({"endpoint": "http://a?token=secret,secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "variable", "found"),
    [
        ("delaylog://h", None, ("http://h:8711",)),
        ("delaylogs://h:9/", None, ("https://h:9",)),
        ("delaylog://a,https://b:2", None, ("http://a:8711", "https://b:2")),
        (None, "delaylog://a , delaylogs://b", ("http://a:8711", "https://b:8711")),
        ("http://a:1", "http://b:1", ("http://a:1",)),
        (None, "http://a:1 http://b:1", "several brokers: a load goes to one of them"),
        (None, "a:1", "missing, and the variable DELAYLOG_URL: the address 'a:1' has no scheme"),
        (None, "", "missing, and the variable DELAYLOG_URL is too"),
    ],
)
def test_an_endpoint_has_the_forms_of_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    variable: str | None,
    found: tuple[str, ...] | str,
) -> None:
    if variable is not None:
        monkeypatch.setenv("DELAYLOG_URL", variable)
    options = {"topic": "t"} if given is None else {"topic": "t", "endpoint": given}
    if isinstance(found, str):
        with pytest.raises(OptionError, match=re.escape(found)):
            Options.parse(options)
    else:
        assert Options.parse(options).endpoints == found


def test_several_endpoints_are_kept_in_order_and_once() -> None:
    options = Options.parse({"endpoint": " http://a:1/ ,https://b:2, http://a:1"})
    assert options.endpoints == ("http://a:1", "https://b:2")


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("endpoint", "", "is too; give the broker's base URL"),
        ("endpoint", "127.0.0.1:8711", "is not a base URL; give one like http://"),
        ("endpoint", "ftp://h:1", "is not a base URL"),
        ("endpoint", "http://h:99999", "is not a base URL"),
        ("endpoint", "http://h:1?x=1", "is not a base URL"),
        ("endpoint", " , ", "give the broker's base URL"),
        ("topic", "a b", "is not a valid name; use"),
        ("topic", "..", "but not . or .."),
        ("namespace", "ä", "is not a valid name; use"),
        ("consumerGroup", "x" * 201, "is not a valid name"),
        ("delivery", "once", "is not one of staged, direct"),
        ("onError", "ignore", "is not one of fail, deadLetter"),
        ("compression", "gzip", "is not one of none, lz4, zstd"),
        ("onExpiredClaim", "skip", "is not one of redeliver, fail"),
        ("failOnDataLoss", "maybe", "is not one of true, false"),
        ("batchSize", "0", "0 is not between 1 and 100000"),
        ("batchSize", "ten", "is not an integer; give one from 1 to"),
        ("batchSize", "1e3", "is not an integer"),
        ("batchBytes", "99999999999999999999", "is not an integer"),
        ("retries", "8", "not known, did you mean retryForMs?"),
        ("retryForMs", "-1", "is not between 0 and"),
        ("delayMs", "-5", "is not between 0 and"),
        ("leaseMs", "43200001", "is not between"),
        ("maxRowsPerSecond", "0", "is not between"),
        ("maxMessagesPerTrigger", "400001", "is not between"),
        ("txnAppId", "a/b", "cannot name a transaction; use"),
        ("path", "/data", "call .save() or .load() without an argument"),
        ("batchsise", "5", "did you mean batchSize?"),
        ("colour", "red", "not known, remove it"),
    ],
)
def test_an_error_names_the_option_and_what_to_do(name: str, value: str, advice: str) -> None:
    with pytest.raises(OptionError, match=re.escape(advice)) as caught:
        Options.parse({**BASE, name: value})
    assert f"option {name}" in str(caught.value)


def test_dead_letters_of_many_topics_need_a_topic_to_go_to() -> None:
    with pytest.raises(OptionError, match="option deadLetterTopic: missing"):
        Options.parse({"endpoint": "http://h:1", "onError": "deadLetter"})
    said = {"endpoint": "http://h:1", "onError": "deadLetter", "deadLetterTopic": "bad"}
    assert Options.parse(said).dead_letter_topic == "bad"
    with pytest.raises(OptionError, match="option deadLetterTopic: give one"):
        Options.parse({**BASE, "topic": "x" * 200, "onError": "deadLetter"})


@pytest.mark.parametrize("value", ["s3cret with blank", "s3cret\nX-Other: 1", "s3crét"])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(OptionError, match="option token") as caught:
        Options.parse({**BASE, "token": value})
    assert "s3cr" not in str(caught.value)


def test_a_password_in_an_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionError, match="option endpoint: has a user or password") as caught:
        Options.parse({"endpoint": "http://me:{}@h:1".format("hidden")})
    assert "hidden" not in str(caught.value)


def test_a_token_is_in_no_repr_and_travels_to_the_tasks() -> None:
    options = Options.parse({**BASE, "token": "s3cret"})
    assert "s3cret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)).token == "s3cret"


def test_what_spark_passes_along_is_let_through() -> None:
    Options.parse({**BASE, "checkpointLocation": "/c", "queryName": "q", "spark.x": "1"})


def test_the_page_names_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "SPARK.md").read_text()
    assert [name for name in OPTION_NAMES if f"`{name}`" not in page] == []
