-- The table `redis` for scripts and functions, and the functions that run them.
local host = ...
local command, sha1 = host.command, host.sha1
local error, type, select, rawget, next, tostring = error, type, select, rawget, next, tostring
local tonumber, unpack, pcall, xpcall, setfenv = tonumber, unpack, pcall, xpcall, setfenv
local find, sub = string.find, string.sub

local function failure(text) return { err = text, ignore_error_stats_update = true } end

-- A function of C takes 8,000 values, and lupa needs a few of them. So Python holds more than PART
-- arguments first, part by part, and then runs the command.
local PART = 4000
local hold, held_command = host.hold, host.held_command
local function in_parts(...)
  local all, n = { ... }, select("#", ...)
  for at = 1, n, PART do hold(at == 1, unpack(all, at, at + PART > n and n or at + PART - 1)) end
  return held_command()
end

-- command() returns a value, or nil and a second result: 1 for the status OK, a text for an error.
-- It returns nil alone if memory is short, because a text would need memory too.
local api = {}

function api.call(...)
  local value, problem
  if select("#", ...) > PART then value, problem = in_parts(...)
  else value, problem = command(...) end
  if value ~= nil then return value end
  if problem == 1 then return { ok = "OK" } end
  if problem then error(failure(problem), 0) end
  error("not enough memory", 0)
end

function api.pcall(...)
  local value, problem
  if select("#", ...) > PART then value, problem = in_parts(...)
  else value, problem = command(...) end
  if value ~= nil then return value end
  if problem == 1 then return { ok = "OK" } end
  if problem then return failure(problem) end
  error("not enough memory", 0)
end

local WRONG = "ERR wrong number or type of arguments"

-- Returns an error text as Redis writes it: it starts with the error's class, by default ERR.
local function error_text(text)
  if sub(text, 1, 1) == "-" then text = sub(text, 2)
  elseif not find(text, " ", 1, true) then text = "ERR " .. text end
  return text
end

function api.error_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = WRONG } end
  return { err = error_text(text) }
end

function api.status_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = WRONG } end
  return { ok = text }
end

local function raise(text) error({ err = text }, 0) end

function api.sha1hex(...)
  if select("#", ...) ~= 1 then raise("ERR wrong number of arguments") end
  local text = ...
  local kind = type(text)
  if kind == "number" then text = tostring(text) elseif kind ~= "string" then text = "" end
  local digest = sha1(text)
  if not digest then error("not enough memory", 0) end
  return digest
end

-- Checks the arguments as Redis does, and logs nothing.
function api.log(...)
  local n = select("#", ...)
  if n < 2 then raise("ERR redis.log() requires two arguments or more.") end
  local level = tonumber((...))
  if type((...)) ~= "number" then raise("ERR First argument must be a number (log level).") end
  if not (level >= 0 and level <= 3) then raise("ERR Invalid debug level.") end
end

function api.set_repl(...)
  if select("#", ...) ~= 1 then raise("ERR redis.set_repl() requires two arguments.") end
  local flags = tonumber((...)) or 0
  if flags < 0 or flags > 3 then
    raise("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
  end
end

for name, value in next, {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = "7.0.15", REDIS_VERSION_NUM = 0x0007000F,
} do api[name] = value end

local function copy(source, ...)
  local result = {}
  for key, value in next, source do result[key] = value end
  return result
end

-- For scripts only, not for functions.
local script_api = copy(api)
function script_api.replicate_commands() return true end
function script_api.breakpoint() return false end
function script_api.debug() end

-- Environments ------------------------------------------------------------------------------------

local protect, base = host.protect, host.base
local libraries = {
  string = protect(host.strings), table = protect(host.tables), math = protect(host.maths),
  coroutine = protect(host.threads), cjson = protect(host.cjson),
  cmsgpack = protect(host.cmsgpack),
}
host.finish_strings(libraries.string)

local function globals(redis)
  local shown = copy(base)
  for name, library in next, libraries do shown[name] = library end
  shown.redis = redis
  local env
  shown.loadstring, shown.load = host.compilers(function() return env end)
  local meta
  env, meta = host.environment(shown)
  return env, shown, meta
end

local script_env, script_shown = globals(protect(script_api))
local library_env, library_shown, library_meta = globals(protect(api))

-- While a library is loaded, it sees only redis.register_function, redis.log and constants.
local register = host.register
local loading_api = setmetatable({
  register_function = function(...)
    local name, callback = ...
    local n = select("#", ...)
    local problem
    if n < 1 or n > 2 then
      raise("ERR wrong number of arguments to redis.register_function")
    elseif n == 1 then
      if type(name) ~= "table" then
        raise("ERR calling redis.register_function with a single argument is only applicable to "
          .. "Lua table (representing named arguments).")
      end
      local given = name
      local flags, described
      name, callback = nil, nil
      for key, value in next, given do
        if key == "function_name" then
          if type(value) ~= "string" and type(value) ~= "number" then
            raise("ERR function_name argument given to redis.register_function must be a string")
          end
          name = tostring(value)
        elseif key == "description" then
          if type(value) ~= "string" and type(value) ~= "number" then
            raise("ERR description argument given to redis.register_function must be a string")
          end
          described = tostring(value)
        elseif key == "callback" then
          if type(value) ~= "function" then
            raise("ERR callback argument given to redis.register_function must be a function")
          end
          callback = value
        elseif key == "flags" then
          if type(value) ~= "table" then
            raise("ERR flags argument to redis.register_function must be a table representing "
              .. "function flags")
          end
          flags = {}
          for k = 1, #value do
            local flag = rawget(value, k)
            if type(flag) ~= "string" then raise("ERR unknown flag given") end
            flags[k] = flag
          end
        else
          raise("ERR unknown argument given to redis.register_function")
        end
      end
      if not name then raise("ERR redis.register_function must get a function name argument") end
      if not callback then raise("ERR redis.register_function must get a callback argument") end
      problem = register(name, callback, described, flags and table.concat(flags, "\0"))
    else
      if type(name) ~= "string" and type(name) ~= "number" then
        raise("ERR first argument to redis.register_function must be a string")
      end
      if type(callback) ~= "function" then
        raise("ERR second argument to redis.register_function must be a function")
      end
      problem = register(tostring(name), callback)
    end
    if problem then raise(problem) end
  end,
  log = api.log,
}, { __index = host.missing })
for name, value in next, api do
  if type(value) ~= "function" then loading_api[name] = value end
end
-- The functions of a library keep the environment that they were created in. So all libraries have
-- one environment, and `show` switches its contents before and after a library is loaded.
local loading_shown = setmetatable({ redis = protect(loading_api) }, { __index = host.missing })
local function show(what) library_meta.__index = what end

local return_result = host.return_result

local function result_or_error(ok, ...)
  if ok then return ... end
  return 9, "ERR " .. tostring((...))
end

local function finish(ok, value)
  if ok then
    local kind = type(value)
    if kind == "string" or kind == "number" then return value end
    if kind == "boolean" then return 0, value end
    return result_or_error(pcall(return_result, value))
  end
  -- When memory ran out or the handler failed, `value` is a text. No new value is created here.
  if type(value) ~= "table" then return 8, value end
  return 9, value.text, value.source, value.line
end

local on_error = host.on_error

-- Argument lists that are longer than the stack arrive in parts.
local pending
function host.begin() pending = {} end
function host.add(...)
  local n, items = #pending, { ... }
  for k = 1, #items do pending[n + k] = items[k] end
end

-- Returns the first `n` values as keys and the others as arguments. A negative `n` means that the
-- values are in `pending` and that -n - 1 of them are keys.
local function split(n, ...)
  if n == 0 then return {}, { ... } end
  if n == 1 then return { (...) }, { select(2, ...) } end
  if n < 0 then
    local all = pending
    pending = nil
    local keys, args, at = {}, {}, -n - 1
    for k = 1, at do keys[k] = all[k] end
    for k = at + 1, #all do args[k - at] = all[k] end
    return keys, args
  end
  return { unpack({ ... }, 1, n) }, { select(n + 1, ...) }
end

-- Fast paths: one or two keys do not need `split`, and plain results do not need `finish`.
function host.run(body, n, a, b, ...)
  if n == 1 then script_shown.KEYS, script_shown.ARGV = { a }, { b, ... }
  elseif n == 2 then script_shown.KEYS, script_shown.ARGV = { a, b }, { ... }
  else script_shown.KEYS, script_shown.ARGV = split(n, a, b, ...) end
  local ok, value = xpcall(body, on_error)
  if ok then
    local kind = type(value)
    if kind == "number" or kind == "string" then return value end
  end
  return finish(ok, value)
end
function host.call_function(body, n, ...)
  local keys, args = split(n, ...)
  return finish(xpcall(function() return body(keys, args) end, on_error))
end

function host.load_library(body)
  setfenv(body, library_env)
  show(loading_shown)
  local ok, problem = xpcall(body, on_error)
  show(library_shown)
  if ok then return true end
  if type(problem) ~= "table" then return false, problem end
  return false, problem.text
end

function host.restore_environment() show(library_shown) end

-- Compiles text only, because bytecode can read and write the process's memory. The error is that
-- of Redis, whose Lua does not load bytecode.
function host.compile(text, name)
  if string.byte(text, 1) == 27 then
    return nil, sub(name, 2) .. ":1: unexpected symbol near 'char(27)'"
  end
  local body, problem = loadstring(text, name)
  if not body then return nil, problem end
  return string.dump(body)
end

function host.revive(dump, is_library)
  return setfenv(loadstring(dump), is_library and library_env or script_env)
end

-- Tables for replies. They are built here, because a Python list would reach the script as a Python
-- object.
function host.array(...) return { ... } end
function host.extend(t, at, ...)
  local items = { ... }
  for k = 1, select("#", ...) do t[at + k] = items[k] end
end
function host.field(name, value) return { [name] = value } end
function host.failure(text) return failure(text) end
