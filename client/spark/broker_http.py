"""BrokerHttp: calls to the broker, with retries; faults that no repeat removes; checks of rights.

All calls are idempotent, so they are repeated after lost answers and transient refusals, for the
time of `retryForMs`. `Retry-After` takes precedence, up to a cap. Without it, the wait doubles from
`retryWaitMs` up to a cap, with jitter against a thundering herd of tasks. Certificates and the
wrong scheme of an address are faults that no repeat removes: `remedy_of` says what to change.
Everything else may be a broker that restarts, so it is repeated.

The connection is opened on first use and is not pickled. Each process finds the token and the TLS
files itself: only a token that is an option is pickled. The token appears in no error, log line or
repr. The checks of rights run before any task: Spark repeats a failed task whatever the error, so a
right that is found missing there costs minutes or, on the topic of rejected rows, is not found
before the first of them.
"""

from __future__ import annotations

import json
import logging
import math
import random
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import BadStatusLine
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import requests
from requests.auth import AuthBase

from pyspark_delaylog.credentials import is_loopback
from pyspark_delaylog.errors import (
    BrokerError,
    OptionError,
    RefusedError,
    UnreachableError,
    UnusableEndpointError,
)
from pyspark_delaylog.leader_route import LeaderRoute
from pyspark_delaylog.options import Options

# ----------------------------------------------------------------------- faults of a connection

PROBE_S: Final = 2.0
OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address."""
NOT_IN_ITS_TIME: Final = frozenset({9, 10})
"""Of a certificate that is not valid yet, or has expired."""
PLAIN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
REFUSED: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
"""Words of alerts by which a broker refuses the client's certificate, or asks for one."""


def cause_of(error: BaseException) -> BaseException:
    """The innermost cause; the wrappers of requests only repeat it."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return error


def remedy_of(cause: BaseException, url: str) -> str | None:
    """What to change, if a call to this address can never succeed; None if it may."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code in OTHER_NAME:
            return "option endpoint must have a name that the broker's certificate has"
        if cause.verify_code in NOT_IN_ITS_TIME:
            return "renew the broker's certificate, or set this machine's clock"
        return (
            "option caFile (or DELAYLOG_CA_FILE), on driver and executors, must name the authority "
            "that signed the broker's certificate"
        )
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or ""
        if reason.endswith(PLAIN):
            return "the broker does not speak TLS at this port: write http://, or its TLS port"
        if "ALERT" in reason and any(word in reason for word in REFUSED):
            return "the broker wants another client certificate: options clientCert and clientKey"
        return None
    broken = isinstance(cause, (ConnectionResetError, BadStatusLine))
    if broken and url.startswith("http:") and _speaks_tls(url):
        return "the broker speaks TLS at this port: write https://"
    return None


def _speaks_tls(url: str) -> bool:
    """Whether a TLS handshake succeeds; nothing is sent."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    place = (parts.hostname or "", parts.port or 80)
    with (
        suppress(OSError),
        socket.create_connection(place, timeout=PROBE_S) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname),
    ):
        return True
    return False


# ---------------------------------------------------------------------- the wait before a retry

RETRY_AFTER_S_MAX: Final = 30.0
"""The cap of Retry-After: a task must not seem to hang for an hour."""
WAIT_S_MAX: Final = 10.0
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
"""Transient statuses. 507 too: disk space is freed when hours have ended."""


def wait_s(tries: int, retry_after_s: float | None, first_ms: int, random: float) -> float:
    """Seconds to wait before try `tries` + 1; `random` is in [0, 1)."""
    assert tries >= 1
    if retry_after_s is not None:
        # Up to 10 % more than requested, so that tasks with the same header do not collide.
        return min(retry_after_s, RETRY_AFTER_S_MAX) * (1 + 0.1 * random)
    longest = min(first_ms / 1000 * 2.0 ** min(tries - 1, 32), WAIT_S_MAX)
    return longest * (0.5 + 0.5 * random)


def retry_after_s(header: str | None, now: datetime | None = None) -> float | None:
    """Parse a `Retry-After` header, a number or a date. None if it is invalid."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            when = parsedate_to_datetime(header)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = (when - (now or datetime.now(UTC))).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None


# ---------------------------------------------------------------------------------------- calls

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
JSON_TYPE: Final = "application/json"
HOPS_MAX: Final = 5
DETAIL_CHARS_MAX: Final = 500
TELL_AFTER_S: Final = 5.0
"""A call that fails for longer is worth a warning; before, it may be a change of leader."""

log = logging.getLogger("pyspark_delaylog")


class _Bearer(AuthBase):
    """Given even without a token, so that requests does not send a password from .netrc."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class BrokerHttp:
    """Calls the broker from one task or the driver. Not thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._retry_for_s = options.retry_for_ms / 1000
        self._retry_wait_ms = options.retry_wait_ms
        self._timeout_s = options.request_timeout_ms / 1000
        self._topics = f"/v1/ns/{quote(options.namespace, safe='')}/topics"
        self._nodes: tuple[str, ...] = options.endpoints
        """Those that are known at the start, from the one to ask on."""
        self._route: LeaderRoute | None = None
        self._session: requests.Session | None = None
        self._answered = False
        self.repeats = 0
        """The number of retries."""

    def __repr__(self) -> str:
        return f"BrokerHttp({self._known[0]!r})"

    def __getstate__(self) -> dict[str, Any]:
        # An executor may lack files of TLS that the driver has: its first answer is to come.
        own = {"_route": None, "_session": None, "_answered": False, "repeats": 0}
        return self.__dict__ | own | {"_nodes": self._known}

    @property
    def _known(self) -> tuple[str, ...]:
        """The known nodes, from the one to ask on."""
        return self._nodes if self._route is None else self._route.nodes

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def of_topic(self, topic: str, *rest: str) -> str:
        """The path of a topic, or of a resource below it."""
        return "/".join((self._topics, *(quote(part, safe="") for part in (topic, *rest))))

    def json(
        self,
        method: str,
        path: str,
        shape: object | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """Make a call with an optional JSON body. Returns the JSON answer."""
        body = None if shape is None else json.dumps(shape).encode()
        return self.send(method, path, body, JSON_TYPE, query)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make a call with any body. Returns the JSON answer."""
        sent = {"Accept": JSON_TYPE, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = content_type
        wire = self.exchange(method, path, body, sent, query)
        try:
            found = json.loads(wire)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BrokerError(
                f"{method} {path}: the answer is not a JSON object; does option endpoint name a "
                f"delaylog broker?"
            )
        return found

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        query: Mapping[str, str | int] | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer. Raises BrokerError.

        A refusal or a fault that may pass is repeated for the time of `retryForMs`.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        route = self._leader_route()
        credentials = route.credentials
        renewed = warned = False
        tries = hops = 0
        began_s = 0.0
        unusable: set[str] = set()
        while True:
            after_s: float | None = None
            base = route.node
            token = credentials.token_for(base)
            try:
                answer = self._once(method, base + target, body, headers, token)
            except requests.exceptions.RequestException as error:
                cause = cause_of(error)
                why = f"{base}: {_clean(f'{type(error).__name__}: {cause}', token)}"
                refused = None
                self.close()
                remedy = None if self._answered else remedy_of(cause, base)
                if remedy is not None:
                    unusable.add(base)
                    if unusable.issuperset(route.nodes):
                        raise UnusableEndpointError(f"{method} {path}: {why}; {remedy}") from None
                route.next(base)
            else:
                self._answered = True
                if answer.status_code < 300:
                    return bytes(answer.content)
                if answer.status_code == 401 and not renewed and credentials.renewed(token):
                    renewed = True
                    continue
                advice = _ADVICE.get(answer.status_code, "")
                if answer.status_code in (307, 308) and hops < HOPS_MAX:
                    hops += 1
                    location = answer.headers.get("Location", "")
                    if self._follow(route, location):
                        continue
                    if obstacle := credentials.obstacle(base, location):
                        advice = f" (the redirect is not followed: {obstacle})"
                refused = _refused(method, path, answer, token, advice)
                if answer.status_code not in PASSING:
                    raise refused
                why = str(refused)
                after_s = retry_after_s(answer.headers.get("Retry-After"))
                if answer.status_code != 429:
                    # Another node may be the leader now. A node that throttles is the right one.
                    route.next(base)
            hops = 0
            tries += 1
            now_s = time.monotonic()
            began_s = now_s if tries == 1 else began_s
            left_s = began_s + self._retry_for_s - now_s
            if left_s <= 0:
                if refused is not None:
                    raise refused
                raise UnreachableError(
                    f"{method} {path}: no answer for {now_s - began_s:.0f} s, in {tries} tries, "
                    f"the last by {why}; is the broker there (option endpoint), or are retryForMs "
                    "and requestTimeoutMs too low?"
                )
            if not warned and now_s - began_s >= TELL_AFTER_S:
                warned = True
                log.warning(
                    "%s %s fails, and is repeated for %.0f s more (option retryForMs): %s",
                    method,
                    path,
                    left_s,
                    why,
                )
            self.repeats += 1
            pause_s = min(wait_s(tries, after_s, self._retry_wait_ms, random.random()), left_s)
            log.info("try %d of %s %s in %.2f s: %s", tries + 1, method, path, pause_s, why)
            time.sleep(pause_s)

    def _leader_route(self) -> LeaderRoute:
        """The nodes, with the token and the TLS files of this process. OptionError if these cannot
        be used.
        """
        if self._route is None:
            credentials = self._options.credentials()
            # The process that has learned a node may have had another token.
            first, *others = filter(credentials.may_receive, self._nodes)
            self._route = LeaderRoute(first, others, credentials)
        return self._route

    def _once(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        token: str | None,
    ) -> requests.Response:
        if self._session is None:
            self._session = requests.Session()
        files = self._leader_route().credentials.files
        cert, key = files["client_cert"], files["client_key"]
        return self._session.request(
            method,
            url,
            data=body,
            headers=dict(headers),
            auth=_Bearer(token),
            # Not in the session: there requests prefers REQUESTS_CA_BUNDLE.
            verify=files["ca_file"],
            cert=cert if cert is None or key is None else (cert, key),
            timeout=self._timeout_s,
            # A proxy of the environment would get the token, and has another loopback.
            proxies={"no_proxy": "*"} if is_loopback(url) else None,
            allow_redirects=False,
        )

    def _follow(self, route: LeaderRoute, location: str) -> bool:
        """Switch to the leader if it is a member. The contacted node is asked for the members."""
        if route.follow(location):
            return True
        base = route.node
        token = route.credentials.token_for(base)
        try:
            answer = self._once("GET", base + "/v1/cluster", None, {}, token)
            cluster = answer.json() if answer.status_code == 200 else None
        except (requests.exceptions.RequestException, ValueError):
            return False
        if isinstance(cluster, dict):
            route.learn(cluster)
        return route.follow(location)


def _refused(
    method: str, path: str, answer: requests.Response, token: str | None, advice: str
) -> RefusedError:
    try:
        problem = json.loads(answer.content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": answer.content.decode(errors="replace")}
    status = answer.status_code
    said: dict[str, Any] = {name: problem.get(name) for name in _MEMBERS}
    said["detail"] = str(problem.get("detail") or problem.get("title") or "")
    for name, value in said.items():
        if isinstance(value, str):
            said[name] = _clean(value, token)
    words = [word for word in (str(status), said["code"], said["detail"]) if word]
    advice = _QUOTA_ADVICE.get(str(said["quota"]), advice)
    return RefusedError(f"{method} {path}: {' '.join(words)}{advice}", status, said)


def _clean(text: str, token: str | None) -> str:
    """Remove the token: a server may echo what it was sent."""
    if token is not None:
        text = text.replace(token, "***")
    return text[:DETAIL_CHARS_MAX]


_MEMBERS: Final = ("code", "state", "item", "field", "quota")

_ADVICE: Final = {
    307: " (the leader is none of the nodes that option endpoint or their cluster name)",
    401: " (give a valid token: option tokenFile, or DELAYLOG_TOKEN on driver and executors)",
    403: " (the token does not have this right)",
    413: " (lower the options batchSize and batchBytes)",
    415: " (the broker needs pyarrow to take what Spark sends: install delaylog[arrow] there)",
    429: " (the broker asks to slow down: raise retryForMs, or set maxRowsPerSecond)",
    507: " (until it is published, a load takes twice its bytes on the broker's disk)",
}

_QUOTA_ADVICE: Final = {
    "staged_bytes": " (limit staged_bytes_max of the broker, 16 GiB by default, of all open loads "
    "together: divide the load into several, one after another, each with its txnAppId; abort "
    "abandoned ones, which delaylog transactions list shows; or raise the limit)",
    "staged_parts": " (the broker's bound for all open loads together: each task makes a part of "
    'each topic that it has rows of. Write df.repartition("topic"), which puts the rows of a topic '
    "into one task)",
    "transactions": " (the broker's bound: abort abandoned loads, which delaylog transactions list "
    "shows)",
}


# --------------------------------------------------------------------------------------- rights


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
