"""Forwards a call to the leader and returns its answer, for clients that follow no redirect.

A call is forwarded only once: a node that does not lead refuses a forwarded call, so two nodes that
take each other for the leader do not send it back and forth. The proxy never retries, since only
the client knows whether a retry is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import JSON
from delaylog.broker.calls.request_ids import HEADER
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.tls.contexts import ClientTls
from delaylog.broker.web.http_context import HttpContext

CARRIED: Final = "Delaylog-Carried"
"""Header of a call that another node has forwarded."""
CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 90.0
"""A long poll waits up to 60 s."""
CONNECTIONS_MAX: Final = 10_000
"""Limit of connections to the leader: each long poll occupies one."""
_HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_REQUEST_ONLY: Final = frozenset(
    {"host", "content-length", "content-encoding", "expect", "origin", "sec-fetch-site"}
)
"""Not forwarded: this node has read the body and checked the client already."""
_ANSWER_ONLY: Final = frozenset({"content-length", "content-type", "date", "server"})


class LeaderProxy:
    """Connections to the leader."""

    def __init__(self, tls: ClientTls | None = None) -> None:
        """`tls`: which certificates of the leader are trusted; None = those of the system."""
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def carry(self, ctx: HttpContext, url: str) -> Answer:
        """The leader's answer. Raises NotLeadingError if the leader does not answer."""
        request = ctx.request
        if CARRIED in request.headers:
            raise NotLeadingError("two nodes take each other for the leader; try again")
        body = await ctx.body()
        headers = _passed_on(request.headers, _REQUEST_ONLY)
        headers[CARRIED] = "1"
        headers[HEADER] = ctx.request_id
        try:
            async with self._open().request(
                request.method,
                URL(url + request.raw_path, encoded=True),
                data=body or None,
                headers=headers,
                allow_redirects=False,
                ssl=True if self._tls is None else self._tls.context,
            ) as response:
                answer = await response.read()
        except aiohttp.ClientConnectorCertificateError as error:
            raise NotLeadingError(
                f"the leader, {url}, has a certificate that this node does not trust "
                f"({error.certificate_error}): see tls-ca"
            ) from None
        except aiohttp.ClientConnectorError:
            raise NotLeadingError(f"the leader, {url}, cannot be reached; try again") from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            raise NotLeadingError(
                f"the leader, {url}, did not answer; the call may have been carried out or not"
            ) from None
        kind = response.headers.get("Content-Type", JSON)
        return Answer(answer, kind, response.status, _passed_on(response.headers, _ANSWER_ONLY))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
            )
            # No retries: a call whose connection breaks may have been carried out.
            self._session._retry_connection = False
        return self._session

    async def stop(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _passed_on(
    headers: Mapping[str, str] | CIMultiDictProxy[str], made_anew: Iterable[str]
) -> CIMultiDict[str]:
    """Headers without those of the connection itself and those in `made_anew`."""
    named = headers.get("Connection", "").split(",")
    dropped = _HOP_BY_HOP.union(made_anew, (name.strip().lower() for name in named))
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in dropped
    )
