"""The handler of each call in the table (`contract/calls`), but for what a leaf carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from delaylog.broker.calls.answers import AnyAnswer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers import (
    access,
    broker,
    claims,
    control,
    lists,
    messages,
    schedules,
    targets,
    topics,
    transactions,
)
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
    "getTail": lists.get_tail,
    "getForecast": lists.forecast,
    "listMessages": lists.list_messages,
    "listDead": lists.list_dead,
    "listDeadReasons": lists.list_dead_reasons,
    "send": messages.send_messages,
    "receive": messages.receive_messages,
    "peek": messages.peek_messages,
    **dict.fromkeys(("ack", "nack", "reject", "extend"), messages.settle_messages),
    "beginAttempts": messages.settle_messages,
    "ackAndReceive": messages.ack_and_receive,
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany"), control.control_many),
    "countMessages": control.count_messages,
    "getMessage": control.get_message,
    "reschedule": control.reschedule_message,
    "cancel": control.cancel_message,
    "listGroups": topics.list_groups,
    "getGroup": topics.get_group,
    "putGroup": topics.put_group_,
    "deleteGroup": topics.delete_group,
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
    "purge": topics.purge_topic,
    **dict.fromkeys(("pause", "resume"), topics.pause_topic),
    "listClaims": claims.list_claims,
    "getClaim": claims.get_claim,
    "makeClaim": claims.make_claim,
    "readClaim": claims.read_claim,
    "extendClaim": claims.extend_claim_,
    **dict.fromkeys(("ackClaim", "releaseClaim"), claims.settle_claim),
    "getOverview": topics.overview,
    "listAllSchedules": schedules.list_all_schedules,
    "listAllTargets": targets.list_all_targets,
    "getClock": broker.get_clock,
    "acceptClock": broker.accept_clock,
    "getHold": broker.get_hold,
    "putHold": broker.put_hold,
    "releaseHold": broker.release_hold,
    "reload": broker.reload_files,
    "getArchive": broker.get_archive,
    "releaseArchive": broker.release_archive,
    "listJobs": control.list_jobs,
    "getJob": control.get_job,
    "stopJob": control.stop_job,
    "listTransactions": transactions.list_transactions,
    "begin": transactions.begin_transaction,
    "getTransaction": transactions.get_transaction,
    "stage": transactions.stage_part,
    "commit": transactions.commit_transaction,
    "abort": transactions.abort_transaction,
    "getCluster": broker.get_cluster,
    "handOver": broker.hand_over,
    "changeMembers": broker.change_members,
    "listPrincipals": access.list_principals,
    "getPrincipal": access.get_principal,
    "putPrincipal": access.put_principal,
    "rotatePrincipal": access.rotate_principal,
    "revokePrincipal": access.revoke_principal,
    "getSession": access.get_session,
    "openSession": access.open_session,
    "closeSession": access.close_session,
    "makeTicket": access.make_ticket,
}
