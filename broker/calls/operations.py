"""The handler of each call in the table (`storage/calls`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from delaylog.broker.calls.answer import Answer, Stream
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers import (
    archive,
    claims,
    clock,
    cluster,
    control,
    control_many,
    groups,
    jobs,
    listing,
    messages,
    principals,
    sessions,
    topics,
    transactions,
)

Handler: TypeAlias = Callable[[Context], Awaitable[Answer | Stream]]

HANDLERS: Final[dict[str, Handler]] = {
    "listTopics": topics.list_topics,
    "getTopic": topics.get_topic,
    "putTopic": topics.put_topic,
    "deleteTopic": topics.delete_topic,
    "getStats": topics.topic_stats,
    "getForecast": listing.forecast,
    "listMessages": listing.list_messages,
    "listDead": listing.list_dead,
    "send": messages.send_messages,
    "receive": messages.receive_messages,
    "peek": messages.peek_messages,
    **dict.fromkeys(("ack", "nack", "extend"), messages.settle_messages),
    "ackAndReceive": messages.ack_and_receive,
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany"), control_many.control_many),
    "getMessage": control.get_message,
    "reschedule": control.reschedule_message,
    "cancel": control.cancel_message,
    "listGroups": groups.list_groups,
    "getGroup": groups.get_group,
    "putGroup": groups.put_group_,
    "deleteGroup": groups.delete_group,
    "purge": groups.purge_topic,
    **dict.fromkeys(("pause", "resume"), groups.pause_topic),
    "listClaims": claims.list_claims,
    "getClaim": claims.get_claim,
    "makeClaim": claims.make_claim,
    "readClaim": claims.read_claim,
    "extendClaim": claims.extend_claim_,
    **dict.fromkeys(("ackClaim", "releaseClaim"), claims.settle_claim),
    "getClock": clock.get_clock,
    "acceptClock": clock.accept_clock,
    "getArchive": archive.get_archive,
    "releaseArchive": archive.release_archive,
    "listJobs": jobs.list_jobs,
    "getJob": jobs.get_job,
    "stopJob": jobs.stop_job,
    "listTransactions": transactions.list_transactions,
    "begin": transactions.begin_transaction,
    "getTransaction": transactions.get_transaction,
    "stage": transactions.stage_part,
    "commit": transactions.commit_transaction,
    "abort": transactions.abort_transaction,
    "getCluster": cluster.get_cluster,
    "handOver": cluster.hand_over,
    "changeMembers": cluster.change_members,
    "listPrincipals": principals.list_principals,
    "getPrincipal": principals.get_principal,
    "putPrincipal": principals.put_principal_,
    "rotatePrincipal": principals.rotate_principal,
    "revokePrincipal": principals.revoke_principal,
    "getSession": sessions.get_session,
    "openSession": sessions.open_session,
    "closeSession": sessions.close_session,
    "makeTicket": sessions.make_ticket,
}
