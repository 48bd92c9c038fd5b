"""The handler of each call in the table (`contract/calls`), but for what a leaf carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from delaylog.broker.calls.answer import AnyAnswer
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers import (
    archive,
    claims,
    clock,
    cluster,
    control,
    control_many,
    groups,
    holds,
    jobs,
    listing,
    messages,
    principals,
    reloading,
    schedules,
    sessions,
    tail,
    targets,
    topics,
    transactions,
)
from delaylog.broker.calls.problems import Problem
from delaylog.extras import STREAMS, missing_part

Handler: TypeAlias = Callable[[Context], Awaitable[AnyAnswer]]


def _missing(part: str) -> Handler:
    """The handler of a call whose leaf is not installed; the HTTP server has that of the leaf."""

    async def refuse(_ctx: Context) -> AnyAnswer:
        raise Problem("unknown", missing_part(part))

    return refuse


HANDLERS: Final[dict[str, Handler]] = {
    "listTopics": topics.list_topics,
    "getTopic": topics.get_topic,
    "putTopic": topics.put_topic,
    "updateTopic": topics.update_topic,
    "deleteTopic": topics.delete_topic,
    "getStats": topics.topic_stats,
    "getTail": tail.get_tail,
    "getForecast": listing.forecast,
    "listMessages": listing.list_messages,
    "listDead": listing.list_dead,
    "listDeadReasons": listing.list_dead_reasons,
    "send": messages.send_messages,
    "receive": messages.receive_messages,
    "peek": messages.peek_messages,
    **dict.fromkeys(("ack", "nack", "reject", "extend"), messages.settle_messages),
    "beginAttempts": messages.settle_messages,
    "ackAndReceive": messages.ack_and_receive,
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany"), control_many.control_many),
    "countMessages": control_many.count_messages,
    "getMessage": control.get_message,
    "reschedule": control.reschedule_message,
    "cancel": control.cancel_message,
    "listGroups": groups.list_groups,
    "getGroup": groups.get_group,
    "putGroup": groups.put_group_,
    "deleteGroup": groups.delete_group,
    "listTargets": targets.list_targets,
    "getTarget": targets.get_target,
    "putTarget": targets.put_target_,
    "updateTarget": targets.update_target,
    "deleteTarget": targets.delete_target,
    "listSchedules": schedules.list_schedules_,
    "getSchedule": schedules.get_schedule,
    "putSchedule": schedules.put_schedule_,
    "updateSchedule": schedules.update_schedule,
    "deleteSchedule": schedules.delete_schedule,
    "pauseSchedule": schedules.pause_schedule_,
    "resumeSchedule": schedules.resume_schedule_,
    "runSchedule": schedules.run_schedule,
    "backfillSchedule": schedules.backfill_schedule,
    "previewSchedule": schedules.preview_schedule,
    "trySchedule": schedules.try_schedule,
    "stream": _missing(STREAMS),
    "purge": groups.purge_topic,
    **dict.fromkeys(("pause", "resume"), groups.pause_topic),
    "listClaims": claims.list_claims,
    "getClaim": claims.get_claim,
    "makeClaim": claims.make_claim,
    "readClaim": claims.read_claim,
    "extendClaim": claims.extend_claim_,
    **dict.fromkeys(("ackClaim", "releaseClaim"), claims.settle_claim),
    "getOverview": topics.overview,
    "listAllSchedules": schedules.list_all_schedules,
    "listAllTargets": targets.list_all_targets,
    "getClock": clock.get_clock,
    "acceptClock": clock.accept_clock,
    "getHold": holds.get_hold,
    "putHold": holds.put_hold,
    "releaseHold": holds.release_hold,
    "reload": reloading.reload_files,
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
    "putPrincipal": principals.put_principal,
    "rotatePrincipal": principals.rotate_principal,
    "revokePrincipal": principals.revoke_principal,
    "getSession": sessions.get_session,
    "openSession": sessions.open_session,
    "closeSession": sessions.close_session,
    "makeTicket": sessions.make_ticket,
}
