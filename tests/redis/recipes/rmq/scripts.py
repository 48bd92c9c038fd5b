"""The scripts of an RMQ topic.

The one rule: a message is in one of store, prepare and dead of its slot, and only a script moves
it. A store score of 16 or less is the number of retries left; that is below every time, so a
failed timed message is due at once and first, and below every priority, so a failed one comes last.
"""

from __future__ import annotations

from tests.redis.recipes.calls import Script

SEND_MERGED = Script("""\
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
return 1
""")
"""KEYS: store. ARGV: body, time. 1 if it is new; the first time wins."""

_PREPARE = """\
local body, score = found[1], tonumber(found[2])
if not body then
  return false
end
local retries_max = tonumber(ARGV[1])
local retries_left = retries_max
if score <= retries_max then
  retries_left = score - 1
end
local prepare_score = ARGV[2] * 1000 + retries_left
redis.call('ZREM', KEYS[1], body)
redis.call('ZADD', KEYS[2], prepare_score, body)
return {body, prepare_score}
"""

POP_DUE = Script(
    """\
local found = redis.call(
  'ZRANGEBYSCORE', KEYS[1], 0, ARGV[3], 'WITHSCORES', 'LIMIT', 0, 1)
"""
    + _PREPARE
)
"""KEYS: store, prepare. ARGV: 16, now in seconds, now in ms. {body, prepare score} or nil."""

POP_HIGHEST = Script("local found = redis.call('ZPOPMAX', KEYS[1])\n" + _PREPARE)
"""KEYS: store, prepare. ARGV: 16, now in seconds. The same."""

ROLL_BACK = Script("""\
local prepared = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not prepared or tonumber(prepared) ~= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
local retries_left = prepared % 1000
if retries_left == 0 then
  redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1])
  return 2
end
redis.call('ZADD', KEYS[1], 'NX', retries_left, ARGV[1])
return 1
""")
"""KEYS: store, prepare, dead. ARGV: body, prepare score, now in ms. 0 it is not that delivery's
any more, 1 back in store, 2 dead."""

REVIVE = Script("""\
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then
  return 0
end
redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
return 1
""")
"""KEYS: store, dead. ARGV: body, score. 1 if it was dead; a newer send keeps its own score."""
