"""camellia's delay queue on any endpoint that speaks Redis's protocol."""

from delaylog.client.recipes.camellia.delay_queue import CamelliaQueue
from delaylog.client.recipes.camellia.keys import CamelliaSettings
from delaylog.client.recipes.camellia.message import DelayMessage, Status
from delaylog.client.recipes.camellia.scheduler import CamelliaRunner, CamelliaScheduler, Round
from delaylog.client.recipes.camellia.topic_info import TopicInfo

__all__ = [
    "CamelliaQueue",
    "CamelliaRunner",
    "CamelliaScheduler",
    "CamelliaSettings",
    "DelayMessage",
    "Round",
    "Status",
    "TopicInfo",
]
