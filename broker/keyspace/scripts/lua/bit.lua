-- The library `bit` of Redis (LuaBitOp): 32-bit words, signed results. The operations are Python
-- functions (bits.py), which return numbers only.
local host = ...
local bad_argument, given = host.bad_argument, host.given
local select, tonumber, format, type, unpack = select, tonumber, string.format, type, unpack
local bit = {}

local function check(what, ...)
  local n, all = select("#", ...), { ... }
  for position = 1, n == 0 and 1 or n do
    local value = all[position]
    if type(value) ~= "number" and not (type(value) == "string" and tonumber(value)) then
      bad_argument(position, what, "number expected, got " .. given(n, position, value), 3)
    end
  end
end

for name, operation in next, host.bits do
  bit[name] = function(...)
    check(name, ...)
    return (operation((...)))
  end
end
-- A function of C takes 8,000 values, and lupa needs a few of them.
local PART = 4000
for _, name in next, { "band", "bor", "bxor" } do
  local operation = host.bits[name]
  bit[name] = function(...)
    check(name, ...)
    local n = select("#", ...)
    if n <= PART then return (operation(...)) end
    local all = { ... }
    local value = operation(unpack(all, 1, PART))
    for at = PART + 1, n, PART do
      value = operation(value, unpack(all, at, at + PART > n and n or at + PART - 1))
    end
    return value
  end
end
for _, name in next, { "lshift", "rshift", "arshift", "rol", "ror" } do
  local operation = host.bits[name]
  bit[name] = function(...)
    local value, by = ...
    if type(value) ~= "number" or type(by) ~= "number" then
      check(name, value, by)
      if select("#", ...) < 2 then
        bad_argument(2, name, "number expected, got no value")
      end
    end
    return (operation(value, by))
  end
end

local tobit = host.bits.tobit
function bit.tohex(...)
  check("tohex", ...)
  local value, digits = ...
  digits = digits == nil and 8 or tobit(digits)
  local letters = "x"
  if digits < 0 then digits, letters = -digits, "X" end
  if digits > 8 then digits = 8 end
  if digits <= 0 then return "" end
  local text = format("%08" .. letters, tobit(value) % 4294967296)
  return text:sub(9 - digits)
end

host.bit = bit
