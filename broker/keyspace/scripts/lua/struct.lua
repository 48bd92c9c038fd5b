-- The library `struct` of Redis. Formats consist of b B h H l L T i I s c f d x, < > ! and spaces.
local host = ...
local bad_argument, given = host.bad_argument, host.given
local packed, read = host.packed, host.unpack
local write_integer, read_integer = host.write_integer, host.read_integer
local type, select, tonumber, tostring, error, unpack = type, select, tonumber, tostring, error, unpack
local sub, find, match, rep = string.sub, string.find, string.match, string.rep
local floor, log, concat = math.floor, math.log, table.concat

local SIZES = { b = 1, B = 1, h = 2, H = 2, l = 8, L = 8, T = 8, f = 4, d = 8, x = 1 }
local UNSIGNED = { B = true, H = true, L = true, T = true, I = true }
local MAX_INTEGER, MAX_ALIGN = 32, 8
local STACK = 8000 -- most values of a C function in Lua, its arguments and results

-- Reads a number in a format. Returns it, or nil if there is none, or false if it is too large; and
-- the next position.
local function digits(format, at)
  local text = match(format, "^%d+", at)
  if not text then return nil, at end
  local n = tonumber(text)
  if n > 2147483647 then return false, at end
  return n, at + #text
end

-- Returns the options of a format, each as { letter, size, little-endian, alignment }, and their
-- count. Errors have level 3: a function of the library calls this, and the script calls that one.
local function options(what, format)
  local list, n, little, align, at = {}, 0, true, 1, 1
  while at <= #format do
    local option = sub(format, at, at)
    at = at + 1
    local size = SIZES[option]
    local count
    if option == "i" or option == "I" then
      count, at = digits(format, at)
      if count == false then error("integral size overflow", 3) end
      size = count or 4
      if size > MAX_INTEGER then
        error("integral size " .. size .. " is larger than limit of " .. MAX_INTEGER, 3)
      end
    elseif option == "c" then
      count, at = digits(format, at)
      if count == false then error("integral size overflow", 3) end
      size = count or 1
    elseif option == "<" then little = true
    elseif option == ">" then little = false
    elseif option == "!" then
      count, at = digits(format, at)
      if count == false then error("integral size overflow", 3) end
      align = count or MAX_ALIGN
      if align == 0 or 2 ^ floor(log(align) / log(2) + 0.5) ~= align or align > 32 then
        error("alignment " .. align .. " is not a power of 2", 3)
      end
    elseif not size and option ~= " " and option ~= "s"
        and not (what == "size" and find(option, "^%w")) then
      bad_argument(1, what, "invalid format option '" .. option .. "'", 3)
    end
    if size or option == "s" then
      n = n + 1
      list[n] = { option, size or 0, little, align }
    end
  end
  return list, n
end

local function padding(total, option, size, align)
  if size == 0 or option == "c" then return 0 end
  if align > size and option ~= "c" then align = size end
  if align <= 1 then return 0 end
  -- This is -total & (align - 1), which C computes also if `align` is not a power of two.
  local mask, value, result, bit = align - 1, (align - total % 64) % 64, 0, 1
  while bit <= mask do
    if mask % (2 * bit) >= bit and value % (2 * bit) >= bit then result = result + bit end
    bit = bit * 2
  end
  return result
end

local function text_of(n, position, what, value)
  if type(value) == "number" then return tostring(value) end
  if type(value) ~= "string" then
    bad_argument(position, what, "string expected, got " .. given(n, position, value), 3)
  end
  return value
end

local struct = {}

function struct.pack(...)
  local format = text_of(select("#", ...), 1, "pack", (...))
  local list, count = options("pack", format)
  local pieces, total, position = {}, 0, 1
  for k = 1, count do
    local option, size, little, align = unpack(list[k])
    local pad = padding(total, option, size, align)
    if pad > 0 then pieces[#pieces + 1] = rep("\0", pad) end
    total = total + pad
    local piece
    if option == "x" then piece = "\0"
    else
      position = position + 1
      local value = (select(position, ...))
      if option == "s" or option == "c" then
        if type(value) == "number" then value = tostring(value) end
        if type(value) ~= "string" then
          bad_argument(position, "pack", "string expected, got " .. type(value))
        end
        if option == "s" then piece = value .. "\0"
        else
          if size == 0 then size = #value end
          if #value < size then -- Redis names the argument after this one, too
            bad_argument(position + 1, "pack", "string too short")
          end
          piece = sub(value, 1, size)
        end
      else
        local number = tonumber(value)
        if not number then
          bad_argument(position, "pack", "number expected, got " .. type(value))
        end
        if option == "f" or option == "d" then
          piece = packed((little and "<" or ">") .. option, number)
        else piece = write_integer(number, size, little) end
      end
    end
    pieces[#pieces + 1] = piece
    total = total + #piece
  end
  return concat(pieces)
end

function struct.unpack(...)
  local n = select("#", ...)
  local format, data, offset = ...
  format, data = text_of(n, 1, "unpack", format), text_of(n, 2, "unpack", data)
  local at = offset == nil and 1 or tonumber(offset)
  if not at then bad_argument(3, "unpack", "number expected, got " .. type(offset)) end
  at = floor(at)
  if not (at >= 1) then bad_argument(3, "unpack", "offset must be 1 or greater") end
  local list, count = options("unpack", format)
  local values, found = {}, 0
  for k = 1, count do
    local option, size, little, align = unpack(list[k])
    at = at + padding(at - 1, option, size, align)
    if at - 1 + size > #data then bad_argument(2, "unpack", "data string too short") end
    if n + found + 2 > STACK then error("stack overflow (too many results)", 2) end
    local value
    if option == "c" then
      if size == 0 then
        size = values[found]
        if found == 0 or type(size) ~= "number" then
          error("format 'c0' needs a previous size", 2)
        end
        found = found - 1
        if size < 0 or at - 1 + size > #data then
          bad_argument(2, "unpack", "data string too short")
        end
      end
      value = sub(data, at, at + size - 1)
    elseif option == "s" then
      local stop = find(data, "\0", at, true)
      if not stop then error("unfinished string in data", 2) end
      value, size = sub(data, at, stop - 1), stop - at + 1
    elseif option == "f" or option == "d" then
      value = read((little and "<" or ">") .. option, sub(data, at, at + size - 1))
    elseif option ~= "x" then
      value = read_integer(sub(data, at, at + size - 1), little, not UNSIGNED[option])
    end
    at = at + size
    if value ~= nil then
      found = found + 1
      values[found] = value
    end
  end
  for k = found + 1, #values do values[k] = nil end -- c0 has taken a size
  values[found + 1] = at
  return unpack(values)
end

function struct.size(...)
  local n = select("#", ...)
  local format = text_of(n, 1, "size", (...))
  local list, count = options("size", format)
  local total = 0
  for k = 1, count do
    local option, size, _, align = unpack(list[k])
    if option == "s" then bad_argument(1, "size", "option 's' has no fixed size") end
    if option == "c" and size == 0 then
      bad_argument(1, "size", "option 'c0' has no fixed size")
    end
    total = total + padding(total, option, size, align) + size
    if total > 2147483647 then error("size of format overflows", 2) end -- the limit of C's int
  end
  return total
end

host.struct = struct
