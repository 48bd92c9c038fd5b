-- string.find, match, gmatch and gsub that respect the script's time limit.
-- The native matcher backtracks inside one C call, which no hook can interrupt, and recurses on the
-- C stack. So a pattern that could take long on its subject is matched by the same algorithm in Lua:
-- about fifty times slower, but it can be stopped. All other patterns use the native matcher.
local host = ...
local strings, settle, check_time = host.strings, host.settle, host.check_time
local pcall, error, type, select, tostring, unpack = pcall, error, type, select, tostring, unpack
local find, match, gsub, gmatch = string.find, string.match, string.gsub, string.gmatch
local sub, byte, char, lower = string.sub, string.byte, string.char, string.lower
local floor, concat = math.floor, table.concat
local bad_argument, given = host.bad_argument, host.given

local NATIVE_STEPS = host.native_steps

-- Pattern -> its cost: exponent of the subject's length, constant factor, depth of recursion.
local costs, known = {}, 0

local function study(pattern)
  local at, n, repeats, doublings, items = 1, #pattern, 0, 0, 0
  local anchored = byte(pattern, 1) == 94
  local last
  while at <= n do
    local c = byte(pattern, at)
    if c == 37 then at = at + (byte(pattern, at + 1) == 98 and 4 or 2) -- %bxy has 4 characters
    elseif c == 91 then -- [set]
      at = at + 1
      if byte(pattern, at) == 94 then at = at + 1 end
      repeat
        local d = byte(pattern, at)
        at = at + 1
        if d == 37 then at = at + 1 end
      until at > n or byte(pattern, at) == 93
      at = at + 1
    else at = at + 1 end
    local suffix = byte(pattern, at)
    items = items + 1
    if suffix == 42 or suffix == 43 or suffix == 45 then
      repeats, last, at = repeats + 1, at, at + 1
    elseif suffix == 63 then
      doublings, last, at = doublings + 1, nil, at + 1
    end
  end
  -- A repetition at the end of the pattern never backtracks: whatever it takes is a match.
  if last and find(pattern, "^[()]*$", last + 1) then repeats = repeats - 1 end
  local power = repeats + (anchored and 0 or 1)
  return { power, 2 ^ doublings * (items + 1), repeats + doublings }
end

local function is_short(subject, pattern)
  local cost = costs[pattern]
  if not cost then
    if #pattern > 1000 then cost = study(pattern)
    else
      if known >= 500 then costs, known = {}, 0 end
      cost = study(pattern)
      costs[pattern], known = cost, known + 1
    end
  end
  return (#subject + 1) ^ cost[1] * cost[2] <= NATIVE_STEPS and cost[3] < 150
end

-- The matcher ---------------------------------------------------------------------------------

local class_of = {} -- letter of a class such as %a -> set of bytes, built with the native matcher
for letter in gmatch("acdlpsuwxz", ".") do
  local set, inverse = {}, {}
  for c = 0, 255 do
    local inside = find(char(c), "%" .. letter) ~= nil
    set[c], inverse[c] = inside, not inside
  end
  class_of[byte(letter)] = set
  class_of[byte(letter:upper())] = inverse
end

-- Returns the position after the single-character item at p.
local function item_end(m, p)
  local pattern = m.pattern
  local c = byte(pattern, p)
  p = p + 1
  if c == 37 then
    if p > m.pattern_size then error("malformed pattern (ends with '%')", 0) end
    return p + 1
  elseif c == 91 then
    if byte(pattern, p) == 94 then p = p + 1 end
    repeat
      local d = byte(pattern, p)
      if not d then error("malformed pattern (missing ']')", 0) end
      p = p + 1
      if d == 37 and p <= m.pattern_size then p = p + 1 end
    until byte(pattern, p) == 93
    return p + 1
  end
  return p
end

local function in_set(pattern, c, p, last) -- p at '[', last at ']'
  local positive = true
  if byte(pattern, p + 1) == 94 then positive, p = false, p + 1 end
  p = p + 1
  while p < last do
    local d = byte(pattern, p)
    if d == 37 then
      p = p + 1
      local e = byte(pattern, p)
      local set = class_of[e]
      if set then
        if set[c] then return positive end
      elseif e == c then return positive end
    elseif byte(pattern, p + 1) == 45 and p + 2 < last then
      if d <= c and c <= byte(pattern, p + 2) then return positive end
      p = p + 2
    elseif d == c then return positive end
    p = p + 1
  end
  return not positive
end

local function single(m, s, p, after)
  local c = byte(m.subject, s)
  if not c then return false end
  local d = byte(m.pattern, p)
  if d == 46 then return true
  elseif d == 37 then
    local e = byte(m.pattern, p + 1)
    local set = class_of[e]
    if set then return set[c] end
    return e == c
  elseif d == 91 then return in_set(m.pattern, c, p, after - 1) end
  return d == c
end

local POSITION, OPEN = -2, -1

local function capture_index(m, digit)
  local index = digit - 48
  if index < 1 or index > m.level or m.size[index] == OPEN then
    error("invalid capture index", 0)
  end
  return index
end

local do_match

local function balanced(m, s, p)
  local open, close = byte(m.pattern, p, p + 1)
  if not close then error("unbalanced pattern", 0) end
  if byte(m.subject, s) ~= open then return nil end
  local depth = 1
  for at = s + 1, m.subject_size do
    local c = byte(m.subject, at)
    if c == close then
      depth = depth - 1
      if depth == 0 then return at + 1 end
    elseif c == open then depth = depth + 1 end
  end
end

function do_match(m, s, p)
  local pattern = m.pattern
  while true do
    if p > m.pattern_size then return s end
    local c = byte(pattern, p)
    if c == 40 then -- a capture opens
      local level = m.level + 1
      if level > 32 then error("too many captures", 0) end
      local is_position = byte(pattern, p + 1) == 41
      m.start[level], m.size[level] = s, is_position and POSITION or OPEN
      m.level = level
      local result = do_match(m, s, p + (is_position and 2 or 1))
      if not result then m.level = m.level - 1 end
      return result
    elseif c == 41 then
      local level
      for k = m.level, 1, -1 do
        if m.size[k] == OPEN then level = k break end
      end
      if not level then error("invalid pattern capture", 0) end
      m.size[level] = s - m.start[level]
      local result = do_match(m, s, p + 1)
      if not result then m.size[level] = OPEN end
      return result
    elseif c == 36 and p == m.pattern_size then
      return s == m.subject_size + 1 and s or nil
    end
    local special = false
    if c == 37 then
      local d = byte(pattern, p + 1)
      if d == 98 then
        s = balanced(m, s, p + 2)
        if not s then return nil end
        p, special = p + 4, true
      elseif d == 102 then
        p = p + 2
        if byte(pattern, p) ~= 91 then error("missing '[' after '%f' in pattern", 0) end
        local after = item_end(m, p)
        local before = s == 1 and 0 or byte(m.subject, s - 1)
        if in_set(pattern, before, p, after - 1)
            or not in_set(pattern, byte(m.subject, s) or 0, p, after - 1) then
          return nil
        end
        p, special = after, true
      elseif d and d >= 48 and d <= 57 then
        local index = capture_index(m, d)
        if m.size[index] == POSITION then return nil end -- a position capture has no text
        local text = sub(m.subject, m.start[index], m.start[index] + m.size[index] - 1)
        if sub(m.subject, s, s + #text - 1) ~= text then return nil end
        s, p, special = s + #text, p + 2, true
      end
    end
    if not special then
      local after = item_end(m, p)
      local suffix = byte(pattern, after)
      if suffix == 63 then
        if single(m, s, p, after) then
          local result = do_match(m, s + 1, after + 1)
          if result then return result end
        end
        p = after + 1
      elseif suffix == 42 or suffix == 43 then
        local count = 0
        while single(m, s + count, p, after) do count = count + 1 end
        for k = count, suffix == 43 and 1 or 0, -1 do
          local result = do_match(m, s + k, after + 1)
          if result then return result end
        end
        return nil
      elseif suffix == 45 then
        while true do
          local result = do_match(m, s, after + 1)
          if result then return result end
          if not single(m, s, p, after) then return nil end
          s = s + 1
        end
      else
        if not single(m, s, p, after) then return nil end
        s, p = s + 1, after
      end
    end
  end
end

local function state(subject, pattern)
  return {
    subject = subject, pattern = pattern, subject_size = #subject, pattern_size = #pattern,
    level = 0, start = {}, size = {},
  }
end

local function capture(m, index, s, e)
  if index > m.level then
    if index ~= 1 then error("invalid capture index", 0) end
    return sub(m.subject, s, e - 1)
  end
  local size = m.size[index]
  if size == OPEN then error("unfinished capture", 0) end
  if size == POSITION then return m.start[index] end
  return sub(m.subject, m.start[index], m.start[index] + size - 1)
end

local function captures(m, s, e, whole)
  local n = m.level
  if n == 0 and whole then n = 1 end
  local result = {}
  for k = 1, n do result[k] = capture(m, k, s, e) end
  return result, n
end

local function slow_find(subject, pattern, init, want_match)
  local m = state(subject, pattern)
  local p = 1
  local anchored = byte(pattern, 1) == 94
  if anchored then p = 2 end
  for s = init, m.subject_size + 1 do
    m.level = 0
    local e = do_match(m, s, p)
    if e then
      local found, n = captures(m, s, e, want_match)
      if want_match then return unpack(found, 1, n) end
      return s, e - 1, unpack(found, 1, n)
    end
    if anchored then break end
  end
  return nil
end

-- A plain search for long texts. It calls check_time() at each candidate, so that it can be stopped.
local function slow_plain(subject, what, init)
  local size, n = #subject, #what
  local first = sub(what, 1, 1)
  local at = init
  while true do
    at = find(subject, first, at, true)
    if not at or at + n - 1 > size then return nil end
    check_time()
    if sub(subject, at, at + n - 1) == what then return at, at + n - 1 end
    at = at + 1
  end
end

local function slow_gmatch(subject, pattern)
  local at = 1
  return function()
    local m = state(subject, pattern)
    for s = at, #subject + 1 do
      m.level = 0
      local e = do_match(m, s, 1)
      if e then
        at = e == s and e + 1 or e
        local found, n = captures(m, s, e, true)
        return unpack(found, 1, n)
      end
    end
    at = #subject + 2
    return nil
  end
end

local function replacement(m, s, e, with, kind)
  local whole = sub(m.subject, s, e - 1)
  local value
  if kind == "string" then
    return (gsub(with, "%%(.)", function(c)
      local d = byte(c)
      if d == 48 then return whole end
      if d >= 49 and d <= 57 then return tostring(capture(m, d - 48, s, e)) end
      return c
    end))
  elseif kind == "table" then value = with[capture(m, 1, s, e)]
  else
    local found, n = captures(m, s, e, true)
    value = with(unpack(found, 1, n))
  end
  if not value then return whole end
  if type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 0)
  end
  return value
end

local function slow_gsub(subject, pattern, with, limit)
  local m = state(subject, pattern)
  local anchored = byte(pattern, 1) == 94
  local p, s, count, pieces, n = anchored and 2 or 1, 1, 0, {}, 0
  local kind = type(with)
  if kind == "number" then with, kind = tostring(with), "string" end
  while count < limit do
    m.level = 0
    local e = do_match(m, s, p)
    if e then
      count, n = count + 1, n + 1
      pieces[n] = replacement(m, s, e, with, kind)
    end
    if e and e > s then s = e
    elseif s <= m.subject_size then
      n = n + 1
      pieces[n] = sub(subject, s, s)
      s = s + 1
    else break end
    if anchored then break end
  end
  pieces[n + 1] = sub(subject, s)
  return concat(pieces), count
end

-- Functions for scripts -------------------------------------------------------------------------

local function texts(subject, pattern)
  if type(subject) == "number" then subject = tostring(subject) end
  if type(pattern) == "number" then pattern = tostring(pattern) end
  if type(subject) == "string" and type(pattern) == "string" then return subject, pattern end
end

-- Returns the start of a search, computed from `init` as the native functions do.
local function from(init, size)
  local at = init == nil and 1 or tonumber(init)
  if not at then return nil end
  at = at < 0 and -floor(-at) or floor(at)
  if at < 0 then at = size + at + 1 end
  if at < 1 then at = 1 end
  return at > size + 1 and size + 1 or at
end

function strings.find(...)
  local subject, pattern, init, plain = ...
  local s, p = texts(subject, pattern)
  if s then
    if plain or not find(p, "[%^%$%*%+%?%.%(%[%%%-]") then
      if #s * #p > NATIVE_STEPS then
        local at = from(init, #s)
        if at then return slow_plain(s, p, at) end
      end
    elseif not is_short(s, p) then
      local at = from(init, #s)
      if at then return settle("find", pcall(slow_find, s, p, at, false)) end
    end
  end
  return settle("find", pcall(find, ...))
end

function strings.match(...)
  local subject, pattern, init = ...
  local s, p = texts(subject, pattern)
  if s and not is_short(s, p) then
    local at = from(init, #s)
    if at then return settle("match", pcall(slow_find, s, p, at, true)) end
  end
  return settle("match", pcall(match, ...))
end

function strings.gmatch(...)
  local s, p = texts((...), (select(2, ...)))
  local step
  if s and not is_short(s, p) then step = slow_gmatch(s, p)
  else step = settle("gmatch", pcall(gmatch, ...)) end
  return function() return settle("gmatch", pcall(step)) end
end
strings.gfind = strings.gmatch

function strings.gsub(...)
  local subject, pattern, with, limit = ...
  local s, p = texts(subject, pattern)
  local kind = type(with)
  if s and (kind == "string" or kind == "number" or kind == "table" or kind == "function")
      and not is_short(s, p) then
    local most = limit == nil and #s + 1 or tonumber(limit)
    if most then return settle("gsub", pcall(slow_gsub, s, p, with, most)) end
  end
  -- A long replacement for many matches could exceed the memory limit inside one native call.
  if kind == "string" and s and #s * (#with + 1) > 1e7 then
    check_time()
    if #s * (#with + 1) > 64 * host.memory_bytes then
      return settle("gsub", pcall(slow_gsub, s, p, with, limit == nil and #s + 1 or tonumber(limit)))
    end
  end
  return settle("gsub", pcall(gsub, ...))
end
