"""Checks that the broker can be reached and that the token has the rights, before any task runs.

Spark repeats a failed task whatever the error, so a right that is found missing there costs minutes
or, on the topic of rejected rows, is not found before the first of them.
"""

from __future__ import annotations

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import OptionError, RefusedError
from pyspark_delaylog.options import Options


def check_may_send(http: BrokerHttp, options: Options) -> None:
    """OptionError if the token may not send to a topic that an option names, or to none at all."""
    if options.topic is None:
        _check(http, "topic", {"may": "send"})
    else:
        _check(http, "topic", {"may": "send"} | _place(options, options.topic))
    if options.dead_letter and options.dead_letter_topic is not None:
        place = _place(options, options.dead_letter_topic)
        _check(http, "deadLetterTopic", {"may": "send"} | place)


def check_may_consume(http: BrokerHttp, options: Options) -> None:
    """OptionError if the token may not receive and read the messages of the topic and group."""
    assert options.topic is not None, "the source checks it"
    group = {} if options.group is None else {"group": options.group}
    for right in ("receive", "read"):
        _check(http, "topic", {"may": right} | _place(options, options.topic) | group)


def _place(options: Options, topic: str) -> dict[str, str]:
    return {"topic": topic, "ns": options.namespace}


def _check(http: BrokerHttp, option: str, query: dict[str, str]) -> None:
    try:
        http.json("GET", "/v1/session", query=query)
    except RefusedError as error:
        if error.status != 403:
            raise
        raise OptionError(
            f"option {option}: the broker refuses it: 403 {error.code} {error.detail}; give a "
            "token that has this right (option tokenFile, or DELAYLOG_TOKEN), or grant it"
        ) from None
