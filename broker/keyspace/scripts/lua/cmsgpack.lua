-- The library `cmsgpack` of Redis 7.0 (lua-cmsgpack 0.4.0): no bin and ext types. Packing replaces
-- tables that are nested deeper than 16 by nil.
local host = ...
local bad_argument, given = host.bad_argument, host.given
local packed, read = host.packed, host.unpack
local type, select, next, tostring, error, unpack = type, select, next, tostring, error, unpack
local tonumber, rawget = tonumber, rawget
local char, byte, sub, floor, concat = string.char, string.byte, string.sub, math.floor, table.concat
local format = string.format

local MAX_NESTING = 16
local STACK = 8000 -- most values of a C function in Lua, its arguments and results
local cmsgpack = {
  _NAME = "cmsgpack", _VERSION = "lua-cmsgpack 0.4.0",
  _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
  _DESCRIPTION = "MessagePack C implementation for Lua",
}

local pieces, size
local function put(text)
  size = size + 1
  pieces[size] = text
end

local function put_number(value)
  if value == floor(value) and value >= -2 ^ 63 and value < 2 ^ 63 then
    if value >= 0 then
      if value <= 127 then put(char(value))
      elseif value <= 255 then put("\204" .. char(value))
      elseif value <= 65535 then put(char(205, floor(value / 256), value % 256))
      elseif value <= 4294967295 then put("\206" .. packed(">I", value))
      else put("\207" .. packed(">Q", value)) end
    elseif value >= -32 then put(char(256 + value))
    elseif value >= -128 then put("\208" .. char(256 + value))
    elseif value >= -32768 then put("\209" .. packed(">h", value))
    elseif value >= -2147483648 then put("\210" .. packed(">i", value))
    else put("\211" .. packed(">q", value)) end
    return
  end
  local text = packed(">f", value)
  if read(">f", text) == value then put("\202" .. text)
  else put("\203" .. packed(">d", value)) end
end

local function put_string(text)
  local n = #text
  if n < 32 then put(char(160 + n))
  elseif n <= 255 then put("\217" .. char(n))
  elseif n <= 65535 then put("\218" .. packed(">H", n))
  else put("\219" .. packed(">I", n)) end
  put(text)
end

local put_value

local function put_table(t, level)
  local most, items, is_array = 0, 0, true
  for key in next, t do
    items = items + 1
    if type(key) ~= "number" or key < 1 or key ~= floor(key) then is_array = false
    elseif key > most then most = key end
  end
  if is_array and most == items then
    if items <= 15 then put(char(144 + items))
    elseif items <= 65535 then put("\220" .. packed(">H", items))
    else put("\221" .. packed(">I", items)) end
    for k = 1, items do put_value(rawget(t, k), level + 1) end
    return
  end
  if items <= 15 then put(char(128 + items))
  elseif items <= 65535 then put("\222" .. packed(">H", items))
  else put("\223" .. packed(">I", items)) end
  for key, value in next, t do
    put_value(key, level + 1)
    put_value(value, level + 1)
  end
end

function put_value(value, level)
  local kind = type(value)
  if kind == "table" and level == MAX_NESTING then put("\192")
  elseif kind == "string" then put_string(value)
  elseif kind == "number" then put_number(value)
  elseif kind == "boolean" then put(value and "\195" or "\194")
  elseif kind == "table" then put_table(value, level)
  else put("\192") end
end

function cmsgpack.pack(...)
  local n = select("#", ...)
  if n == 0 then bad_argument(0, "pack", "MessagePack pack needs input.") end
  if 2 * n > STACK then bad_argument(0, "pack", "Too many arguments for MessagePack pack.") end
  pieces, size = {}, 0
  for k = 1, n do put_value((select(k, ...)), 0) end
  local text = concat(pieces)
  pieces = nil
  return text
end

-- Unpacking: functions return the value and the next position; on an error nil, nil and its text.
local MISSING, BAD = "Missing bytes in input.", "Bad data format in input."

local read_value

local function read_array(text, at, n)
  local result = {}
  for k = 1, n do
    local value, problem
    value, at, problem = read_value(text, at)
    if problem then return nil, nil, problem end
    result[k] = value
  end
  return result, at
end

local function read_map(text, at, n)
  local result = {}
  for _ = 1, n do
    local key, value, problem
    key, at, problem = read_value(text, at)
    if problem then return nil, nil, problem end
    value, at, problem = read_value(text, at)
    if problem then return nil, nil, problem end
    if key == nil then error("table index is nil", 0) end
    if key ~= key then error("table index is NaN", 0) end
    result[key] = value
  end
  return result, at
end

local function read_text(text, at, n)
  if at + n - 1 > #text then return nil, nil, MISSING end
  return sub(text, at, at + n - 1), at + n
end

-- Type byte -> layout of the number that follows it. All 8-byte integers are read as signed, as
-- lua-cmsgpack does.
local NUMBERS = {
  [202] = ">f", [203] = ">d", [204] = "B", [205] = ">H", [206] = ">I", [207] = ">q", [208] = "b",
  [209] = ">h", [210] = ">i", [211] = ">q", [217] = "B", [218] = ">H", [219] = ">I",
  [220] = ">H", [221] = ">I", [222] = ">H", [223] = ">I",
}
local SIZES = { f = 4, d = 8, B = 1, H = 2, I = 4, Q = 8, b = 1, h = 2, i = 4, q = 8 }

function read_value(text, at)
  local c = byte(text, at)
  if not c then return nil, nil, MISSING end
  at = at + 1
  if c < 128 then return c, at
  elseif c < 144 then return read_map(text, at, c - 128)
  elseif c < 160 then return read_array(text, at, c - 144)
  elseif c < 192 then return read_text(text, at, c - 160)
  elseif c >= 224 then return c - 256, at
  elseif c == 192 then return nil, at
  elseif c == 194 then return false, at
  elseif c == 195 then return true, at end
  local layout = NUMBERS[c]
  if not layout then return nil, nil, BAD end
  local after = at + SIZES[sub(layout, -1)]
  if after - 1 > #text then return nil, nil, MISSING end
  local value = read(layout, sub(text, at, after - 1))
  if c <= 211 then return value, after
  elseif c <= 219 then return read_text(text, after, value)
  elseif c <= 221 then return read_array(text, after, value) end
  return read_map(text, after, value)
end

-- `unpack` itself has three arguments on the stack.
local function all_of(values, count)
  if count <= STACK - 3 then return unpack(values, 1, count) end
  return values[1], values[2], unpack(values, 3, count)
end

-- Returns the next offset (-1 at the end) and up to `limit` values from `offset`. With limit 0 it
-- returns all values, without an offset.
local function unpack_from(what, n, text, limit, offset)
  if type(text) == "number" then text = tostring(text) end
  if type(text) ~= "string" then
    bad_argument(1, what, "string expected, got " .. given(n, 1, text), 3)
  end
  if offset < 0 or limit < 0 then
    error(format("Invalid request to unpack with offset of %d and limit of %d.", offset, #text), 3)
  elseif offset > #text then
    error(format("Start offset %d greater than input length %d.", offset, #text), 3)
  end
  local all = limit == 0
  local values, count, at = {}, 0, offset + 1
  local room = STACK - (all and n or 1)
  while at <= #text and (all or count < limit) do
    if count == room then
      error("stack overflow (too many return values at once; use unpack_one or unpack_limit "
        .. "instead.)", 3)
    end
    local value, problem
    value, at, problem = read_value(text, at)
    if problem then error(problem, 3) end
    count = count + 1
    values[count] = value
  end
  if all then return all_of(values, count) end
  if count == room then error("stack overflow (in function mp_unpack_full)", 3) end
  return at > #text and -1 or at - 1, all_of(values, count)
end

local function whole_argument(what, n, position, value)
  local number = tonumber(value)
  if not number then
    bad_argument(position, what, "number expected, got " .. given(n, position, value), 3)
  end
  return number < 0 and -floor(-number) or floor(number)
end

function cmsgpack.unpack(...)
  return unpack_from("unpack", select("#", ...), (...), 0, 0)
end
function cmsgpack.unpack_one(...)
  local n = select("#", ...)
  local text, offset = ...
  if offset == nil then offset = 0 else offset = whole_argument("unpack_one", n, 2, offset) end
  return unpack_from("unpack_one", n, text, 1, offset)
end
function cmsgpack.unpack_limit(...)
  local n = select("#", ...)
  local text, limit, offset = ...
  limit = whole_argument("unpack_limit", n, 2, limit)
  if offset == nil then offset = 0 else offset = whole_argument("unpack_limit", n, 3, offset) end
  return unpack_from("unpack_limit", n, text, limit, offset)
end

host.cmsgpack = cmsgpack
