"""`delaylog cluster doctor`: asks every member of a cluster for its status and reports problems.

One node lists the members; each is then asked at the address that clients use. `cluster_checks`
evaluates the answers.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from delaylog.broker.cli.connection import ANSWER_S, route_of, waiting
from delaylog.broker.cli.doctor.cluster_checks import Asked, examine
from delaylog.broker.cli.doctor.findings import print_report
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import json_call
from delaylog.client.calls.topics import cluster
from delaylog.client.errors import AnswerLost, ApiError, ClientError, NotReached
from delaylog.client.wire.credentials import CredentialsError
from delaylog.client.wire.leader_route import LeaderRoute


async def doctor_command(args: argparse.Namespace) -> int:
    """`delaylog cluster doctor`: 0, or 1 if a check fails. A warning is no failure."""
    route, _ = route_of(args)
    transport = AsyncTransport(route, timeout_s=ANSWER_S)
    with waiting(args):
        try:
            named = await _listed(transport, route)
        finally:
            await transport.close()
        asked = await asyncio.gather(*(_ask(route, member) for member in named["members"]))
    report = examine(asked)
    return print_report(report, as_json=args.json, cluster=named["cluster"])


async def _listed(transport: AsyncTransport, route: LeaderRoute) -> dict[str, Any]:
    """The answer of the first node that answers, of those that the caller named."""
    for _ in range(route.known - 1):
        at = route.node
        try:
            return await transport.carry(cluster())
        except (NotReached, AnswerLost):
            route.next(at)
    return await transport.carry(cluster())


def _transport(route: LeaderRoute) -> AsyncTransport:
    # Each node answers for itself: no retries, and no other node is asked instead.
    return AsyncTransport(route, timeout_s=ANSWER_S, failover_s=0.0)


async def _ask(route: LeaderRoute, member: dict[str, Any]) -> Asked:
    node, name, url = member["node"], member["name"], member["http"]
    try:
        transport = _transport(route.only(url))
    except CredentialsError as error:
        return Asked(node, name, url, error=str(error))
    try:
        status = await transport.carry(cluster())
        try:
            ready = await transport.carry(json_call("GET", "/readyz"))
        except ApiError as error:
            return Asked(node, name, url, status, unready=error.detail)
        return Asked(node, name, url, status, ready=ready)
    except ClientError as error:
        return Asked(node, name, url, error=_why(error))
    finally:
        await transport.close()


def _why(error: ClientError) -> str:
    """The error's text without the call, since the line names the address already."""
    return str(error).rpartition(": ")[2] or str(error)
