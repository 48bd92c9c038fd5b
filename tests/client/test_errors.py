"""The family of errors: a class for each code that a broker may say, with its facts."""

from __future__ import annotations

import pickle

import pytest

from delaylog.broker.calls.problems import Problem, problem_answer
from delaylog.client import (
    ApiError,
    ClientError,
    Conflict,
    NotReached,
    QuotaExceeded,
    SendFailed,
    TooLate,
)
from delaylog.client.errors import CLASSES, api_error


@pytest.mark.parametrize("code", CLASSES)
def test_each_code_of_the_broker_has_its_class(code: str) -> None:
    """By the document that the broker itself makes of it."""
    response = problem_answer(Problem(code, "words", field="f", item=3, state="leased"))
    document = {"code": code, "detail": "words", "field": "f", "item": 3, "state": "leased"}
    error = api_error(response.status, document, 2.0)
    assert type(error) is CLASSES[code]
    assert (error.status, error.code, error.detail) == (response.status, code, "words")
    assert (error.field, error.item, error.state, error.retry_after_s) == ("f", 3, "leased", 2.0)
    assert str(error) == f"{response.status} {code}: words"


def test_codes_that_nobody_knows_yet_are_plain() -> None:
    assert type(api_error(418, {"code": "teapot"})) is ApiError
    assert type(api_error(500, {})) is ApiError
    assert issubclass(TooLate, Conflict)


def test_errors_cross_processes_whole() -> None:
    error = api_error(429, {"code": "quota", "detail": "enough", "item": 1}, 1.5)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is QuotaExceeded
    assert vars(again) == vars(error)
    failed = pickle.loads(pickle.dumps(SendFailed([NotReached("a"), error], rows=5)))
    assert (failed.rows, len(failed.failures), failed.outcomes) == (5, 2, ())
    assert str(failed) == "5 messages were not sent; the first: a"
    assert isinstance(failed, ClientError)
