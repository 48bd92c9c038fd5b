"""The handler of each call in the table (`contract/calls`), but for what a leaf carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from delaylog.broker.calls.answers import AnyAnswer, Problem
from delaylog.broker.calls.context import Context
from delaylog.broker.calls.handlers.access import (
    close_session,
    get_principal,
    get_session,
    list_principals,
    make_ticket,
    open_session,
    put_principal,
    revoke_principal,
    rotate_principal,
)
from delaylog.broker.calls.handlers.broker import (
    accept_clock,
    change_members,
    get_archive,
    get_clock,
    get_cluster,
    get_hold,
    hand_over,
    put_hold,
    release_archive,
    release_hold,
    reload_files,
)
from delaylog.broker.calls.handlers.claims import (
    extend_claim_,
    get_claim,
    list_claims,
    make_claim,
    read_claim,
    settle_claim,
)
from delaylog.broker.calls.handlers.control import (
    cancel_message,
    control_many,
    count_messages,
    get_job,
    get_message,
    list_jobs,
    reschedule_message,
    stop_job,
)
from delaylog.broker.calls.handlers.lists import (
    forecast,
    get_tail,
    list_dead,
    list_dead_reasons,
    list_messages,
)
from delaylog.broker.calls.handlers.messages import (
    ack_and_receive,
    peek_messages,
    receive_messages,
    send_messages,
    settle_messages,
)
from delaylog.broker.calls.handlers.schedules import (
    backfill_schedule,
    delete_schedule,
    get_schedule,
    list_all_schedules,
    list_schedules_,
    pause_schedule_,
    preview_schedule,
    put_schedule_,
    resume_schedule_,
    run_schedule,
    try_schedule,
    update_schedule,
)
from delaylog.broker.calls.handlers.targets import (
    delete_target,
    get_target,
    list_all_targets,
    list_targets,
    put_target_,
    update_target,
)
from delaylog.broker.calls.handlers.topics import (
    delete_group,
    delete_topic,
    get_group,
    get_topic,
    list_groups,
    list_topics,
    overview,
    pause_topic,
    purge_topic,
    put_group_,
    put_topic,
    topic_stats,
    update_topic,
)
from delaylog.broker.calls.handlers.transactions import (
    abort_transaction,
    begin_transaction,
    commit_transaction,
    get_transaction,
    list_transactions,
    stage_part,
)
from delaylog.extras import STREAMS, missing_part

Handler: TypeAlias = Callable[[Context], Awaitable[AnyAnswer]]


def _missing(part: str) -> Handler:
    """The handler of a call whose leaf is not installed; the HTTP server has that of the leaf."""

    async def refuse(_ctx: Context) -> AnyAnswer:
        raise Problem("unknown", missing_part(part))

    return refuse


HANDLERS: Final[dict[str, Handler]] = {
    "listTopics": list_topics,
    "getTopic": get_topic,
    "putTopic": put_topic,
    "updateTopic": update_topic,
    "deleteTopic": delete_topic,
    "getStats": topic_stats,
    "getTail": get_tail,
    "getForecast": forecast,
    "listMessages": list_messages,
    "listDead": list_dead,
    "listDeadReasons": list_dead_reasons,
    "send": send_messages,
    "receive": receive_messages,
    "peek": peek_messages,
    **dict.fromkeys(("ack", "nack", "reject", "extend"), settle_messages),
    "beginAttempts": settle_messages,
    "ackAndReceive": ack_and_receive,
    **dict.fromkeys(("cancelMany", "rescheduleMany", "replayMany"), control_many),
    "countMessages": count_messages,
    "getMessage": get_message,
    "reschedule": reschedule_message,
    "cancel": cancel_message,
    "listGroups": list_groups,
    "getGroup": get_group,
    "putGroup": put_group_,
    "deleteGroup": delete_group,
    "listTargets": list_targets,
    "getTarget": get_target,
    "putTarget": put_target_,
    "updateTarget": update_target,
    "deleteTarget": delete_target,
    "listSchedules": list_schedules_,
    "getSchedule": get_schedule,
    "putSchedule": put_schedule_,
    "updateSchedule": update_schedule,
    "deleteSchedule": delete_schedule,
    "pauseSchedule": pause_schedule_,
    "resumeSchedule": resume_schedule_,
    "runSchedule": run_schedule,
    "backfillSchedule": backfill_schedule,
    "previewSchedule": preview_schedule,
    "trySchedule": try_schedule,
    "stream": _missing(STREAMS),
    "purge": purge_topic,
    **dict.fromkeys(("pause", "resume"), pause_topic),
    "listClaims": list_claims,
    "getClaim": get_claim,
    "makeClaim": make_claim,
    "readClaim": read_claim,
    "extendClaim": extend_claim_,
    **dict.fromkeys(("ackClaim", "releaseClaim"), settle_claim),
    "getOverview": overview,
    "listAllSchedules": list_all_schedules,
    "listAllTargets": list_all_targets,
    "getClock": get_clock,
    "acceptClock": accept_clock,
    "getHold": get_hold,
    "putHold": put_hold,
    "releaseHold": release_hold,
    "reload": reload_files,
    "getArchive": get_archive,
    "releaseArchive": release_archive,
    "listJobs": list_jobs,
    "getJob": get_job,
    "stopJob": stop_job,
    "listTransactions": list_transactions,
    "begin": begin_transaction,
    "getTransaction": get_transaction,
    "stage": stage_part,
    "commit": commit_transaction,
    "abort": abort_transaction,
    "getCluster": get_cluster,
    "handOver": hand_over,
    "changeMembers": change_members,
    "listPrincipals": list_principals,
    "getPrincipal": get_principal,
    "putPrincipal": put_principal,
    "rotatePrincipal": rotate_principal,
    "revokePrincipal": revoke_principal,
    "getSession": get_session,
    "openSession": open_session,
    "closeSession": close_session,
    "makeTicket": make_ticket,
}
