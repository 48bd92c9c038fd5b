-- math.random as in Redis: the 48-bit generator of drand48, which is the same on every machine.
local host = ...
local floor, error, select, type, tonumber = math.floor, error, select, type, tonumber
local bad_argument, given = host.bad_argument, host.given

local HALF = 2 ^ 24
local A_HIGH, A_LOW, C = 0x5DE, 0xECE66D, 0xB
local MAX = 2147483647
local high, low = 0x1234AB, 0xCD330E

local function draw()
  local product = low * A_LOW + C
  local carry = floor(product / HALF)
  high = (high * A_LOW + low * A_HIGH + carry) % HALF
  low = product % HALF
  return floor((high * HALF + low) / 2 ^ 17) -- the upper 31 bits
end

local function whole(n, position, value)
  local number = tonumber(value)
  if not number then
    bad_argument(position, "random", "number expected, got " .. given(n, position, value), 3)
  end
  return number < 0 and -floor(-number) or floor(number)
end

function host.maths.random(...)
  local n = select("#", ...)
  local r = draw() % MAX / MAX
  if n == 0 then return r end
  local first, last = ...
  if n == 1 then
    last = whole(n, 1, first)
    if last < 1 then bad_argument(1, "random", "interval is empty") end
    return floor(r * last) + 1
  elseif n == 2 then
    first, last = whole(n, 1, first), whole(n, 2, last)
    if first > last then bad_argument(2, "random", "interval is empty") end
    return floor(r * (last - first + 1)) + first
  end
  error("wrong number of arguments", 2)
end

local function seed(value)
  value = value % 2 ^ 32 -- the 48 bits are the seed (32 bits) and 0x330E (16 bits)
  high = floor(value / 256)
  low = value % 256 * 65536 + 0x330E
end

function host.maths.randomseed(value)
  local number = tonumber(value)
  if not number then bad_argument(1, "randomseed", "number expected, got " .. type(value)) end
  -- NaN or infinity would make every later number NaN.
  if number ~= number or number == 1 / 0 or number == -1 / 0 then number = 0 end
  seed(number < 0 and -floor(-number) or floor(number))
end
