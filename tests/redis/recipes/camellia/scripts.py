"""The scripts of camellia's delay queue, and one of ours.

The one rule: an id goes from one queue to the next inside a script, so it is never in none.
"""

from __future__ import annotations

from tests.redis.recipes.calls import Script

PULL = Script("""\
local id = redis.call('RPOP', KEYS[1])
if id then
  redis.call('ZADD', KEYS[2], ARGV[1], id)
end
return id
""")
"""KEYS: ready, ack. ARGV: deadline. The oldest ready id, or nil."""

MOVE = Script("""\
for at = 2, 1 + ARGV[1] do
  redis.call('ZREM', KEYS[1], ARGV[at])
  redis.call('LPUSH', KEYS[2], ARGV[at])
end
return tonumber(ARGV[1])
""")
"""KEYS: waiting or ack, ready. ARGV: ids, each id. Moved whether or not they were there."""

GIVE_BACK = Script("""\
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('LPUSH', KEYS[2], ARGV[1])
return 1
""")
"""KEYS: ack, ready. ARGV: id. Only what is in work goes back: the original's refusal puts any id
into ready, and a living one could then be delivered twice."""

RENEW = Script("""\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
""")
"""KEYS: lock. ARGV: owner, ms. 1 if it is still the owner's."""

RELEASE = Script("""\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
""")
"""KEYS: lock. ARGV: owner. 1 if it was still the owner's."""
