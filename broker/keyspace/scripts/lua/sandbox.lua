-- The globals of scripts: an allow-list of read-only tables. Functions of Lua 5.1 that would let a
-- script leave the sandbox, block the process or exhaust its memory are replaced by wrappers.
-- The real _G is never changed: lupa reads it outside of protected calls, where an error aborts the
-- process.
local host = ...
local error, type, rawget, rawset, select, next = error, type, rawget, rawset, select, next
local pcall, setfenv, loadstring, unpack = pcall, setfenv, loadstring, unpack
local tostring, tonumber, setmetatable, newproxy = tostring, tonumber, setmetatable, newproxy
local sethook, getinfo, resume = debug.sethook, debug.getinfo, coroutine.resume
local create = coroutine.create
local find, byte = string.find, string.byte
local concat = table.concat

local HOOK_COUNT = 1000

-- Time ------------------------------------------------------------------------------------------

local late = host.late
local stopped = false

local function check_time()
  if stopped or late() then
    stopped = true
    sethook(check_time, "", 1) -- if the script catches this error, the next instruction raises it again
    error("script stopped", 0)
  end
end
host.check_time = check_time
sethook(check_time, "", HOOK_COUNT)

function host.rearm()
  stopped = false
  sethook(check_time, "", HOOK_COUNT)
end

-- Errors ----------------------------------------------------------------------------------------

-- Returns the results of `pcall` on the native function `what`, or raises its error. Under pcall
-- Lua does not know the function's name and writes '?', which is replaced by `what`.
local function settle(what, ok, ...)
  if ok then return ... end
  local message = ...
  if type(message) == "string" then
    message = string.gsub(message, "to '%?'", "to '" .. what .. "'")
    message = string.gsub(message, "^scripts:%d+: ", "")
    error(message, 3)
  end
  error(message, 0)
end
host.settle = settle

-- Raises the error of luaL_argerror. `level` 2 locates it at the caller of the calling function.
local function bad_argument(position, what, problem, level)
  error("bad argument #" .. position .. " to '" .. what .. "' (" .. problem .. ")", (level or 2) + 1)
end
host.bad_argument = bad_argument

local function given(n, position, value)
  if n < position then return "no value" end
  return type(value)
end
host.given = given

-- Returns a number as bytes; `layout` is a format of Python's struct.
function host.packed(layout, value)
  local text = host.pack(layout, value)
  if not text then error("not enough memory", 0) end
  return text
end

-- Read-only tables ------------------------------------------------------------------------------

local guarded = setmetatable({}, { __mode = "k" }) -- proxy -> the table behind it
host.guarded = guarded

local READ_ONLY = "Attempt to modify a readonly table"

local function refuse() error(READ_ONLY, 2) end

-- The result of getmetatable for each proxy: an empty read-only table.
local shield = setmetatable({}, { __newindex = refuse, __metatable = false })
guarded[shield] = {}

local function protect(shown)
  local meta = { __index = shown, __newindex = refuse, __metatable = shield }
  local proxy = setmetatable({}, meta)
  guarded[proxy] = shown
  return proxy, meta
end
host.protect = protect

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

-- Returns an environment: a read-only proxy of `shown` that raises an error for unknown names.
function host.environment(shown)
  setmetatable(shown, { __index = missing })
  local env, meta = protect(shown)
  shown._G = env
  return env, meta
end
host.missing = missing

-- Base functions --------------------------------------------------------------------------------

local base = {
  assert = assert, error = error, ipairs = ipairs,
  rawequal = rawequal, select = select, getmetatable = getmetatable,
  setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type,
  unpack = unpack, gcinfo = gcinfo, _VERSION = _VERSION,
}

-- A proxy is empty itself, so pairs and next iterate over the table behind it. They never return
-- that table to the script.
function base.pairs(...)
  local t = ...
  local shown = guarded[t]
  if shown then return function(_, key) return next(shown, key) end, t, nil end
  if type(t) ~= "table" then
    bad_argument(1, "pairs", "table expected, got " .. given(select("#", ...), 1, t))
  end
  return next, t, nil
end
function base.next(...)
  local t, key = ...
  local shown = guarded[t]
  if shown then return next(shown, key) end
  if type(t) ~= "table" then
    bad_argument(1, "next", "table expected, got " .. given(select("#", ...), 1, t))
  end
  return next(t, key)
end

function base.rawget(...)
  local t, key = ...
  if guarded[t] then t = guarded[t] end
  if type(t) ~= "table" then
    bad_argument(1, "rawget", "table expected, got " .. given(select("#", ...), 1, t))
  end
  return rawget(t, key)
end

function base.rawset(...)
  local t, key, value = ...
  if guarded[t] then error(READ_ONLY, 0) end
  return settle("rawset", pcall(rawset, ...))
end

function base.setmetatable(...)
  local t = ...
  if guarded[t] then error(READ_ONLY, 0) end
  return settle("setmetatable", pcall(setmetatable, ...))
end

-- Results of a failed pcall: an error table of redis.call is replaced by its text.
local function caught(ok, problem, ...)
  if not ok then
    if type(problem) == "table" then
      local text = rawget(problem, "err")
      if type(text) == "string" then return false, text end
    end
    return false, problem
  end
  return true, problem, ...
end
local function passed(ok, ...)
  if ok then return true, ... end
  return caught(false, ...)
end
function base.pcall(...)
  if select("#", ...) == 0 then return false, "attempt to call a boolean value" end
  return passed(pcall(...))
end

-- The real xpcall would run the script's handler with the hook off, so it could run forever.
local function handled(handler, ok, ...)
  if ok then return true, ... end
  return false, select(2, pcall(handler, (...)))
end
function base.xpcall(body, handler) return handled(handler, pcall(body)) end

-- Compiles text only: bytecode can read and write the process's memory.
local function compile(env, text, name)
  if byte(text, 1) == 27 then return nil, "attempt to load chunk with wrong mode" end
  local chunk, problem = loadstring(text, name)
  if not chunk then return nil, problem end
  return setfenv(chunk, env)
end

function host.compilers(env_of)
  local function script_loadstring(...)
    local text, name = ...
    local kind = type(text)
    if kind == "number" then text = tostring(text)
    elseif kind ~= "string" then
      bad_argument(1, "loadstring", "string expected, got " .. given(select("#", ...), 1, text))
    end
    if name ~= nil and type(name) ~= "string" then name = tostring(name) end
    return compile(env_of(), text, name or text)
  end
  local function script_load(reader, name)
    if type(reader) ~= "function" then
      bad_argument(1, "load", "function expected, got " .. type(reader))
    end
    local pieces, n = {}, 0
    while true do
      local piece = reader()
      if piece == nil or piece == "" then break end
      if type(piece) ~= "string" then return nil, "reader function must return a string" end
      n = n + 1
      pieces[n] = piece
    end
    return compile(env_of(), concat(pieces), type(name) == "string" and name or "=(load)")
  end
  return script_loadstring, script_load
end

local collect = collectgarbage
function base.collectgarbage(what)
  if what == "count" then return collect("count") end
  if what == nil or what == "collect" or what == "step" then
    check_time()
    collect("step", 100)
    return 0
  end
  return 0 -- the collector's settings belong to the server
end

-- Coroutines: in Lua 5.1 a hook belongs to one coroutine, and one without a hook cannot be stopped.
local function armed(...)
  local body = ...
  if type(body) ~= "function" then
    bad_argument(1, "create", "Lua function expected", 3)
  end
  local thread = create(body)
  sethook(thread, check_time, "", stopped and 1 or HOOK_COUNT)
  return thread
end
local function relay(ok, ...)
  if ok then return ... end
  local problem = ...
  if type(problem) == "string" then error(problem, 3) end
  error(problem, 0)
end
local threads = {
  create = function(...) return armed(...) end,
  wrap = function(...)
    local thread = armed(...)
    return function(...) return relay(resume(thread, ...)) end
  end,
  resume = resume, running = coroutine.running, status = coroutine.status,
  yield = coroutine.yield,
}

-- Libraries -------------------------------------------------------------------------------------

local function copy(source)
  local result = {}
  for key, value in next, source do result[key] = value end
  return result
end

local strings = copy(string)
strings.dump = nil

local real_rep = string.rep
function strings.rep(...)
  local text, times = ...
  if type(text) == "string" and type(times) == "number" then
    if text == "" or times < 1 then return "" end
    if #text * times > 65536 then
      check_time()
      if #text * times > host.memory_bytes then error("not enough memory", 0) end
    end
    return real_rep(text, times)
  end
  return settle("rep", pcall(real_rep, ...))
end
-- On a long text each call takes milliseconds, and the hook runs only every 1,000 instructions.
for _, name in next, { "upper", "lower", "reverse" } do
  local real = string[name]
  strings[name] = function(...)
    local text = ...
    if type(text) ~= "string" then return settle(name, pcall(real, ...)) end
    if #text > 65536 then check_time() end
    return real(text)
  end
end

local tables = copy(table)
local insert, remove, sort = table.insert, table.remove, table.sort
function tables.insert(...)
  local t = ...
  if guarded[t] then error(READ_ONLY, 0) end
  local n = select("#", ...)
  if type(t) == "table" and n == 2 then
    t[#t + 1] = select(2, ...)
    return
  end
  if type(t) == "table" and #t > 10000 then check_time() end
  return settle("insert", pcall(insert, ...))
end
function tables.remove(...)
  local t = ...
  if guarded[t] then error(READ_ONLY, 0) end
  if type(t) == "table" and select("#", ...) > 1 and #t > 10000 then check_time() end
  return settle("remove", pcall(remove, ...))
end
function tables.sort(...)
  if guarded[(...)] then error(READ_ONLY, 0) end
  return settle("sort", pcall(sort, ...))
end
local SLICE = 5000
function tables.concat(...)
  local t, separator, first, last = ...
  if type(t) ~= "table" or #t <= 2 * SLICE then return settle("concat", pcall(concat, ...)) end
  separator, first, last = separator or "", first or 1, last or #t
  if type(separator) == "number" then separator = tostring(separator) end
  if type(separator) ~= "string" or type(first) ~= "number" or type(last) ~= "number" then
    return settle("concat", pcall(concat, ...))
  end
  local parts, n = {}, 0
  for from = first, last, SLICE do
    check_time()
    local to = from + SLICE - 1
    n = n + 1
    parts[n] = settle("concat", pcall(concat, t, separator, from, to < last and to or last))
  end
  return concat(parts, separator)
end

host.base, host.strings, host.tables = base, strings, tables
host.threads, host.maths = threads, copy(math)

-- getmetatable('') returns a read-only table; its __index is the read-only library `string`.
function host.finish_strings(proxy)
  local meta = getmetatable("")
  meta.__index = strings
  meta.__metatable = protect({ __index = proxy })
end

-- cjson.null: a userdata without operations, as in Redis.
local null = newproxy(true)
do
  local meta = getmetatable(null)
  meta.__tostring = function() return "userdata: (nil)" end
  meta.__metatable = false
end
host.null = null

-- Running ---------------------------------------------------------------------------------------

-- The error handler. It finds the innermost frame of the script's code, for "on @user_script:1".
local OURS = "=scripts"
function host.on_error(problem)
  local source, line
  for level = 2, 12 do
    local info = getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" and info.what ~= "tail" and info.source ~= OURS then
      source, line = info.source, info.currentline
      break
    end
  end
  local text
  if type(problem) == "table" then
    text = rawget(problem, "err")
    if type(text) ~= "string" then text = "ERR unknown error" end
  elseif type(problem) == "userdata" then
    text = "ERR userdata"
  else
    text = "ERR " .. string.gsub(tostring(problem), "^scripts:%d+: ", "")
  end
  return { text = text, source = source, line = line }
end
