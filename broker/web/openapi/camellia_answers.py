"""JSON schemas of the answers of camellia's calls."""

from __future__ import annotations

from delaylog.broker.web.camellia.monitor import REQUEST_KINDS
from delaylog.broker.web.camellia.topic_info import STRETCH_NAMES
from delaylog.broker.web.openapi.schemas import COUNT, INT, TEXT, each, list_of, object_of, ref
from delaylog.contract.members import Schema


def camellia_schemas() -> dict[str, Schema]:
    """By name."""
    gaps = list_of(object_of(topic=TEXT, **each(COUNT, "count", "max"), avg={"type": "number"}))
    return {
        "CamelliaMessage": object_of(
            **each(TEXT, "topic", "msgId", "msg"),
            **each(INT, "produceTime", "triggerTime", "expireTime"),
            **each(COUNT, "maxRetry", "retry"),
            status={"type": "integer", "minimum": 1, "maximum": 7},
        ),
        "CamelliaTopicInfo": object_of(
            topic=TEXT,
            waitingQueueInfo=object_of(**each(COUNT, *STRETCH_NAMES)),
            **each(COUNT, "waitingQueueSize", "readyQueueSize", "ackQueueSize"),
        ),
        "CamelliaRequests": object_of(topic=TEXT, **each(COUNT, *REQUEST_KINDS)),
        "CamelliaMonitorData": object_of(
            requestStatsList=list_of(ref("CamelliaRequests")),
            **each(gaps, "pullMsgTimeGapStatsList", "readyQueueTimeGapStatsList"),
        ),
        "CamelliaHealth": object_of(code={"enum": [200, 500]}),
    }
