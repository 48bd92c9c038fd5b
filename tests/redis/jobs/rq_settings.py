"""Settings for `rq worker --config rq_settings`."""

from __future__ import annotations

import where

if where.SENTINELS:
    SENTINEL = {"INSTANCES": where.SENTINELS, "MASTER_NAME": where.MASTER}
else:
    REDIS_URL = where.URL
