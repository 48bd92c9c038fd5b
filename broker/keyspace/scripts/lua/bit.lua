-- The library `bit` of Redis (LuaBitOp): 32-bit words, signed results. The operations are Python
-- functions (bits.py), which return numbers only.
local host = ...
local bad_argument, given = host.bad_argument, host.given
local select, tonumber, format, type = select, tonumber, string.format, type
local bit = {}

local function check(what, ...)
  local n = select("#", ...)
  for position = 1, n == 0 and 1 or n do
    local value = (select(position, ...))
    if type(value) ~= "number" and not (type(value) == "string" and tonumber(value)) then
      bad_argument(position, what, "number expected, got " .. given(n, position, value), 3)
    end
  end
end

for name, operation in next, host.bits do
  bit[name] = function(...)
    check(name, ...)
    return (operation(...))
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
