"""The family of errors: a class for each code that a broker may say, with its facts."""

from __future__ import annotations

import errno
import pickle
import socket
from datetime import timedelta

import pytest

from delaylog.broker.calls.answers import Problem, problem_answer
from delaylog.broker.testing.live_broker import LiveBroker
from delaylog.client import (
    AnswerLate,
    AnswerLost,
    ApiError,
    AsyncClient,
    BadRequest,
    ClientError,
    Conflict,
    NotFound,
    NotReached,
    NotReachedInTime,
    SendFailed,
    TooLate,
)
from delaylog.client.errors import CLASSES, api_error, lost_after
from tests.client.either import ThreadedClient


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


def test_failures_of_several_sends_cross_processes_whole() -> None:
    errors = [NotReached("a"), api_error(429, {"code": "quota"}, 1.5)]
    failed = pickle.loads(pickle.dumps(SendFailed(errors, rows=5)))
    assert (failed.rows, len(failed.failures), failed.outcomes) == (5, 2, ())
    assert str(failed) == "5 messages were not sent; the first: a"
    assert isinstance(failed, ClientError)


@pytest.mark.parametrize(
    ("error", "builtins"),
    [
        (NotReached("refused"), {ConnectionError, OSError}),
        (AnswerLost("broken off"), {ConnectionError, OSError}),
        (AnswerLate("no answer"), {ConnectionError, TimeoutError, OSError}),
        (NotReachedInTime("refused"), {ConnectionError, TimeoutError, OSError}),
        (api_error(400, {"code": "bad_request"}), {ValueError}),
        (api_error(404, {"code": "unknown"}), {LookupError}),
        (api_error(413, {"code": "too_large", "item": 3}), {ValueError}),
        (api_error(401, {"code": "unauthorized"}), {PermissionError, OSError}),
        (api_error(403, {"code": "forbidden"}), {PermissionError, OSError}),
        (api_error(503, {"code": "not_ready"}, 1.5), {ConnectionError, OSError}),
        (api_error(507, {"code": "disk_full", "detail": "full"}), {OSError}),
        (api_error(409, {"code": "conflict"}), set[type]()),
        (api_error(429, {"code": "quota", "item": 1}, 1.5), set[type]()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_are_what_a_program_expects(error: ClientError, builtins: set[type]) -> None:
    """They derive from built-in exceptions, and still cross processes with text and facts."""
    usual = (ConnectionError, TimeoutError, ValueError, LookupError, PermissionError, OSError)
    assert {kind for kind in usual if isinstance(error, kind)} == builtins
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
    assert vars(again) == vars(error)
    assert isinstance(error, ClientError)


def test_a_full_disk_has_the_number_of_one() -> None:
    full = api_error(507, {"code": "disk_full", "detail": "no room"})
    assert isinstance(full, OSError)
    assert full.errno == pickle.loads(pickle.dumps(full)).errno == errno.ENOSPC
    assert str(full) == "507 disk_full: no room"


def test_a_last_try_that_is_late_is_a_timeout() -> None:
    lost, late = AnswerLost("broken off"), AnswerLate("no answer")
    assert type(lost_after(lost, late)) is AnswerLate
    assert type(lost_after(late, NotReached("refused"))) is AnswerLost
    assert str(lost_after(lost, late)) == "broken off; then no answer"


@pytest.mark.parametrize("kind", [AsyncClient, ThreadedClient])
async def test_what_programs_catch(kind: type[AsyncClient], delaylog_broker: LiveBroker) -> None:
    """By the built-in class alone: of a broker that refuses, one that is mute, and one away."""
    async with kind(delaylog_broker.url) as client:
        with pytest.raises(LookupError) as unknown:
            await client.get("t", "no such id")
        assert type(unknown.value) is NotFound
        with pytest.raises(ValueError, match="max") as refused:
            await client.receive("t", max=1 << 40)
        assert type(refused.value) is BadRequest
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        async with kind(url, timeout=timedelta(seconds=0.2)) as client:
            with pytest.raises(TimeoutError) as late:
                await client.topics()
            assert type(late.value) is AnswerLate
    async with kind(url, timeout=timedelta(seconds=0.2)) as client:
        with pytest.raises(ConnectionError) as away:
            await client.topics()
        assert type(away.value) is NotReachedInTime
