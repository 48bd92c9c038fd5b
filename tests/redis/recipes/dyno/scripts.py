"""The nine scripts of a Dyno queue.

The one rule: KEYS[1] is the hash of bodies and every other name travels in ARGV, as the original
has it, so an endpoint must let scripts touch keys that they did not declare. Traps that belong to
the recipe and are kept on purpose, so that queues shared with the original behave alike:

- ZADD answers 0 when NX lost, and 0 is true in Lua: nobody notices that the id was in unack;
- a bulk pop answers an empty array for all when one id is gone, after it moved the ids before it;
- the due test of bulk pop and of pop by id compares two texts, not two numbers.
"""

from __future__ import annotations

from tests.redis.recipes.calls import Script

REMOVE = Script("""\
local id = ARGV[1]
local from_queues, from_unacks = 0, 0
for shard = 1, ARGV[2] do
  from_queues = from_queues + redis.call('ZREM', ARGV[2 * shard + 1], id)
  from_unacks = from_unacks + redis.call('ZREM', ARGV[2 * shard + 2], id)
end
local bodies = redis.call('HDEL', KEYS[1], id)
if from_queues == 1 or from_unacks == 1 or bodies == 1 then
  return 1
end
return from_unacks
""")
"""ARGV: id, shards, (queue, unack) of each. 1 if it was somewhere."""

FIND = Script("""\
local cursor = 0
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor)
  cursor = tonumber(page[1])
  for at = 1, #page[2], 2 do
    if string.match(page[2][at + 1], ARGV[1]) then
      return page[2][at]
    end
  end
until cursor == 0
return nil
""")
"""ARGV: Lua pattern. The first id whose body matches it, or nil."""

FIND_LOCAL = Script("""\
local cursor = 0
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor)
  cursor = tonumber(page[1])
  for at = 1, #page[2], 2 do
    local id = page[2][at]
    if string.match(page[2][at + 1], ARGV[1]) and redis.call('ZRANK', ARGV[2], id) then
      return id
    end
  end
until cursor == 0
return nil
""")
"""ARGV: Lua pattern, queue. The same, among the ids of one queue."""

POP_MATCHING = Script("""\
local pattern, shards = ARGV[1], tonumber(ARGV[2])
local due_max, unack_score = tonumber(ARGV[3]), ARGV[4]
local best_id, best_body, best_score, best_shard
local finished, left = {}, math.floor(shards)
local rank = 0
while left > 0 do
  for shard = 1, shards do
    if not finished[shard] then
      local entry = redis.call('ZRANGE', ARGV[2 * shard + 3], rank, rank, 'WITHSCORES')
      local id, score = entry[1], tonumber(entry[2])
      if not id or score > due_max or (best_score and score > best_score) then
        finished[shard] = true
        left = left - 1
      else
        local body = redis.call('HGET', KEYS[1], id)
        if body and string.match(body, pattern) and (not best_score or score < best_score) then
          best_id, best_body, best_score, best_shard = id, body, score, shard
        end
      end
    end
  end
  rank = rank + 1
end
if not best_id then
  return {}
end
redis.call('ZADD', ARGV[2 * best_shard + 4], 'NX', unack_score, best_id)
redis.call('ZREM', ARGV[2 * best_shard + 3], best_id)
return {best_id, best_body}
""")
"""ARGV: Lua pattern, shards, now + 1, unack score, (queue, unack) of each. {id, body} or {}."""

BULK_POP = Script("""\
local due_max, unack_score, queue, unack = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bodies = {}
for at = 6, 5 + ARGV[1] do
  local id = ARGV[at]
  local score = redis.call('ZSCORE', queue, id)
  if not score then
    return {}
  end
  if score <= due_max then
    local body = redis.call('HGET', KEYS[1], id)
    if redis.call('ZADD', unack, 'NX', unack_score, id) and redis.call('ZREM', queue, id) then
      bodies[#bodies + 1] = body
    end
  end
end
return bodies
""")
"""ARGV: ids, now + 1, unack score, queue, unack, each id. Their bodies, or {} if one is gone."""

BULK_POP_ALL = Script("""\
local count, shards, due_max, unack_score = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ids_from = 5 + 2 * shards
local bodies = {}
for at = ids_from, ids_from + count - 1 do
  local id = ARGV[at]
  local found = false
  for shard = 1, shards do
    local queue, unack = ARGV[2 * shard + 3], ARGV[2 * shard + 4]
    local score = redis.call('ZSCORE', queue, id)
    if score then
      found = true
      if score <= due_max then
        local body = redis.call('HGET', KEYS[1], id)
        if redis.call('ZADD', unack, 'NX', unack_score, id) and redis.call('ZREM', queue, id) then
          bodies[#bodies + 1] = body
          break
        end
      end
    end
  end
  if not found then
    return {}
  end
end
return bodies
""")
"""ARGV: ids, shards, now + 1, unack score, (queue, unack) of each shard, each id. As BULK_POP."""

POP_ID = Script("""\
local id, due_max, unack_score = ARGV[1], ARGV[3], ARGV[4]
for shard = 1, ARGV[2] do
  local queue, unack = ARGV[2 * shard + 3], ARGV[2 * shard + 4]
  local score = redis.call('ZSCORE', queue, id)
  if score and score <= due_max then
    local body = redis.call('HGET', KEYS[1], id)
    if redis.call('ZADD', unack, 'NX', unack_score, id) and redis.call('ZREM', queue, id) then
      return body
    end
  end
end
return nil
""")
"""ARGV: id, shards, now + 1, unack score, (queue, unack) of each. The body, or nil."""

STALE = Script("""\
local queue, unack = ARGV[1], ARGV[2]
local stale = {}
for at = 4, 3 + ARGV[3] do
  local id = ARGV[at]
  local whole = redis.call('HGET', KEYS[1], id) and redis.call('ZSCORE', queue, id)
  if not whole and not redis.call('ZSCORE', unack, id) then
    stale[#stale + 1] = id
  end
end
return stale
""")
"""ARGV: queue, unack, ids, each id. Those without a body or a place in the queue, nor in unack."""

PROCESS_UNACKS = Script("""\
local unack, queue = ARGV[1], ARGV[2]
local moved, stale = 0, 0
for at = 4, 2 + 2 * ARGV[3], 2 do
  local id, score = ARGV[at], ARGV[at + 1]
  if redis.call('HGET', KEYS[1], id) then
    redis.call('ZADD', queue, score, id)
    moved = moved + 1
  else
    stale = stale + 1
  end
  redis.call('ZREM', unack, id)
end
return {moved, stale}
""")
"""ARGV: unack, queue, ids, (id, score) of each. {moved back, dropped for want of a body}."""
