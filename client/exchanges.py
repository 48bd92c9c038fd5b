"""One call on the wire, at whichever node of a cluster it is for, and how it fails.

The one rule: what is done again here is what cannot have been done, or what may be done twice. A
call that a node sends on goes to the leader; one that reached nobody goes to another node; while
there is no leader, a repeatable one is tried again for a while.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final

import aiohttp
from yarl import URL

from delaylog.client.answers import AnswerLost, ApiError, ClientError, NotReached
from delaylog.client.leader_route import LeaderRoute

# Time a call may take beyond what it asked the broker to wait.
CALL_TIMEOUT_S: Final = 30.0
JSON_TYPE: Final = "application/json"
# How long what may be repeated is tried while a cluster has no leader; one comes within a second.
FAILOVER_S: Final = 10.0
RETRY_EVERY_S: Final = 0.1
HOPS_MAX: Final = 5
MOVED: Final = 307


class Exchanges:
    """The connections of one client."""

    def __init__(
        self,
        route: LeaderRoute,
        cluster_url: str,
        *,
        token: str | None,
        call_timeout_s: float,
        connections_max: int,
        failover_s: float,
    ) -> None:
        self._route = route
        self._cluster_url = cluster_url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._call_timeout_s = call_timeout_s
        self._connections_max = connections_max
        self._failover_s = failover_s
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Begin to take calls."""
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=self._connections_max),
        )
        # aiohttp repeats GET, PUT and DELETE by itself when a kept connection breaks. A repeated
        # cancel answers differently from the first, so the caller has to see the break instead.
        self._session._retry_connection = False

    async def close(self) -> None:
        """Drop the connections. Calls under way end with AnswerLost."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        extra_s: float = 0.0,
        *,
        repeatable: bool = False,
    ) -> bytes:
        """The body of a 2xx answer, or one of the three errors; `repeatable` = twice is as once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._failover_s
        repeatable = repeatable or method == "GET"
        hops = 0
        while True:
            try:
                return await self._once(method, self._route.to(url), body, headers, extra_s)
            except ApiError as error:
                if error.location is not None and hops < HOPS_MAX:
                    hops += 1
                    if await self._follow(error.location):
                        continue
                may_repeat = repeatable and error.code == "not_ready"
                if not may_repeat or loop.time() >= until:
                    raise
            except (NotReached, AnswerLost) as error:
                may_repeat = repeatable or isinstance(error, NotReached)
                may_repeat = may_repeat and self._route.knows_others
                if not may_repeat or loop.time() >= until:
                    raise
            hops = 0
            self._route.next()
            await asyncio.sleep(RETRY_EVERY_S)

    async def _follow(self, location: str) -> bool:
        """Go to the leader, if it is a member; who the members are, a node that we know says."""
        if self._route.follow(location):
            return True
        url = self._route.to(self._cluster_url)
        try:
            status = json.loads(await self._once("GET", url, None, {"Accept": JSON_TYPE}))
        except (ClientError, ValueError):
            return False
        if isinstance(status, dict):
            self._route.learn(status)
        return self._route.follow(location)

    async def _once(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        extra_s: float = 0.0,
    ) -> bytes:
        """One exchange with one node."""
        assert self._session is not None, "use the client inside `async with`"
        timeout = aiohttp.ClientTimeout(total=self._call_timeout_s + extra_s)
        target = URL(url, encoded=True)
        try:
            async with self._session.request(
                method,
                target,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise NotReached(f"{method} {url}: not an http address") from error
        except aiohttp.ClientConnectorError as error:
            raise NotReached(f"{method} {url}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise AnswerLost(f"{method} {url}: {error or type(error).__name__}") from error
        if response.status >= 300:
            raise _api_error(response, answer)
        return answer


def _api_error(response: aiohttp.ClientResponse, answer: bytes) -> ApiError:
    try:
        problem = json.loads(answer)
    except ValueError:
        problem = {"detail": answer[:200].decode(errors="replace")}
    if not isinstance(problem, dict):
        problem = {"detail": str(problem)[:200]}
    try:
        retry_after_s = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        retry_after_s = None
    location = response.headers.get("Location") if response.status == MOVED else None
    return ApiError(response.status, problem, retry_after_s, location)
