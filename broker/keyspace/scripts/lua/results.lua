-- Returns a script's result to Python: as one value, as a flat list, or as a stream.
local host = ...
local type, rawget, next, unpack = type, rawget, next, unpack

local MAX_DEPTH = host.reply_depth
local FLAT = 4000 -- most values of a flat list, which is returned on Lua's stack

-- Kinds of values in the stream, which conversion.py reads.
local SCALAR, ARRAY, STATUS, ERROR = 0, 1, 2, 3

local stream, length

local function put(kind, value)
  stream[length + 1], stream[length + 2] = kind, value
  length = length + 2
end

local function flatten(value, depth)
  local kind = type(value)
  if kind ~= "table" then
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then value = false end
    return put(SCALAR, value)
  end
  if depth > MAX_DEPTH then return put(ERROR, "ERR reached lua stack limit") end
  local part = rawget(value, "err")
  if type(part) == "string" then return put(ERROR, part) end
  part = rawget(value, "ok")
  if type(part) == "string" then return put(STATUS, part) end
  local at, n = length + 2, 0
  put(ARRAY, 0)
  while true do
    local item = rawget(value, n + 1)
    if item == nil then break end
    n = n + 1
    flatten(item, depth + 1)
  end
  stream[at] = n
end

function host.return_result(value)
  if type(value) ~= "table" then return 0, nil end
  if rawget(value, 1) ~= nil and rawget(value, "err") == nil and rawget(value, "ok") == nil then
    local n = 0
    while true do
      local item = rawget(value, n + 1)
      local item_kind = type(item)
      if item_kind == "nil" then return 1, unpack(value, 1, n) end
      if item_kind ~= "string" and item_kind ~= "number" or n >= FLAT then break end
      n = n + 1
    end
  end
  stream, length = {}, 0
  flatten(value, 1)
  return 2, length
end

function host.slice(first, last) return unpack(stream, first, last) end
function host.forget() stream = nil end
