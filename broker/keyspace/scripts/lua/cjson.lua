-- The library `cjson` of Redis 7.0, with the same defaults and error texts.
local host = ...
local null, bad_argument, given, check_time = host.null, host.bad_argument, host.given, host.check_time
local type, select, next, tostring, tonumber, error = type, select, next, tostring, tonumber, error
local rawget = rawget
local find, sub, byte, char, gsub, format = string.find, string.sub, string.byte, string.char,
  string.gsub, string.format
local concat, floor, huge = table.concat, math.floor, math.huge

local function new()
  local settings = {
    convert = false, ratio = 2, safe = 10, encode_max_depth = 1000, decode_max_depth = 1000,
    encode_number_precision = 14, encode_keep_buffer = true,
    encode_invalid_numbers = false, decode_invalid_numbers = true,
  }
  local precision = "%.14g"
  local cjson = { null = null, _NAME = "cjson", _VERSION = "2.1.0" }

  -- Encoding: the text is collected in `pieces`. A function that fails returns the error's text.
  local escapes = {
    ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\t"] = "\\t",
    ["\n"] = "\\n", ["\f"] = "\\f", ["\r"] = "\\r",
  }
  for code = 0, 127 do
    local c = char(code)
    if (code < 32 or code == 127) and not escapes[c] then escapes[c] = format("\\u%04x", code) end
  end

  local pieces, size
  local function put(text)
    size = size + 1
    pieces[size] = text
  end

  local function quoted(text)
    if #text > 65536 then check_time() end
    if find(text, '[%c"\\/]') then text = gsub(text, '[%c"\\/]', escapes) end
    return '"' .. text .. '"'
  end

  local function refusal(value, why)
    return "Cannot serialise " .. type(value) .. ": " .. why
  end

  local function number(value)
    if value ~= value or value == huge or value == -huge then
      if settings.encode_invalid_numbers == "null" then return "null" end
      if not settings.encode_invalid_numbers then
        return nil, refusal(value, "must not be NaN or Inf")
      end
      if value ~= value then return "nan" end
      return value > 0 and "inf" or "-inf"
    end
    return format(precision, value)
  end

  -- Returns the length of an array, or -1 for an object, or nil and an error text.
  local function array_length(t)
    local most, items = 0, 0
    for key in next, t do
      if type(key) ~= "number" or key < 1 or key ~= floor(key) then return -1 end
      if key > most then most = key end
      items = items + 1
    end
    if settings.ratio > 0 and most > items * settings.ratio and most > settings.safe then
      if not settings.convert then return nil, refusal(t, "excessively sparse array") end
      return -1
    end
    return most
  end

  local append

  local function append_table(t, depth)
    if depth > settings.encode_max_depth then
      return "Cannot serialise, excessive nesting (" .. depth .. ")"
    end
    local n, problem = array_length(t)
    if problem then return problem end
    if n > 0 then
      put("[")
      for k = 1, n do
        if k > 1 then put(",") end
        problem = append(rawget(t, k), depth)
        if problem then return problem end
      end
      put("]")
      return
    end
    put("{")
    local first = true
    for key, value in next, t do
      local kind = type(key)
      local text
      if kind == "string" then text = quoted(key)
      elseif kind == "number" then
        text, problem = number(key)
        if problem then return problem end
        text = '"' .. text .. '"'
      else return refusal(key, "table key must be a number or string") end
      put((first and "" or ",") .. text .. ":")
      first = false
      problem = append(value, depth)
      if problem then return problem end
    end
    put("}")
  end

  function append(value, depth)
    local kind = type(value)
    if kind == "string" then put(quoted(value))
    elseif kind == "number" then
      local text, problem = number(value)
      if problem then return problem end
      put(text)
    elseif kind == "boolean" then put(value and "true" or "false")
    elseif kind == "table" then return append_table(value, depth + 1)
    elseif value == nil or value == null then put("null")
    else return refusal(value, "type not supported") end
  end

  function cjson.encode(...)
    if select("#", ...) ~= 1 then bad_argument(1, "encode", "expected 1 argument") end
    pieces, size = {}, 0
    local problem = append((...), 0)
    local text = not problem and concat(pieces)
    pieces = nil
    if problem then error(problem, 2) end
    return text
  end

  -- Decoding: native searches find each token. A zero byte ends the text.
  local NAMES = {
    ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END",
    [","] = "T_COMMA", [":"] = "T_COLON",
  }
  local SIMPLE = {
    ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
  }

  local function utf8(code)
    if code < 128 then return char(code) end
    if code < 2048 then return char(192 + floor(code / 64), 128 + code % 64) end
    if code < 65536 then
      return char(224 + floor(code / 4096), 128 + floor(code / 64) % 64, 128 + code % 64)
    end
    return char(240 + floor(code / 262144), 128 + floor(code / 4096) % 64,
      128 + floor(code / 64) % 64, 128 + code % 64)
  end

  -- Reads the string whose opening quote is at `at`. Returns the string and the next position; on
  -- an error nil, the error's text and its position.
  local function read_string(text, at)
    local parts, n
    local from = at + 1
    while true do
      local stop = find(text, '["\\%z]', from)
      if not stop then return nil, "unexpected end of string", #text + 1 end
      local c = byte(text, stop)
      if c == 34 then
        local rest = sub(text, from, stop - 1)
        if not parts then return rest, stop + 1 end
        parts[n + 1] = rest
        return concat(parts), stop + 1
      elseif c == 0 then return nil, "unexpected end of string", stop end
      if not parts then parts, n = {}, 0 end
      local letter = sub(text, stop + 1, stop + 1)
      local plain
      if letter == "u" then
        local _, last, digits = find(text, "^(%x%x%x%x)", stop + 2)
        if not digits then return nil, "invalid unicode escape code", stop end
        local code = tonumber(digits, 16)
        if code >= 0xD800 and code < 0xE000 then
          local _, low_last, low = find(text, "^\\u(%x%x%x%x)", last + 1)
          low = low and tonumber(low, 16)
          if code >= 0xDC00 or not low or low < 0xDC00 or low >= 0xE000 then
            return nil, "invalid unicode escape code", stop
          end
          code, last = 0x10000 + (code - 0xD800) * 1024 + low - 0xDC00, low_last
        end
        plain, c = utf8(code), last + 1
      else
        plain, c = SIMPLE[letter], stop + 2
        if not plain then return nil, "invalid escape code", stop end
      end
      parts[n + 1], parts[n + 2] = sub(text, from, stop - 1), plain
      n, from = n + 2, c
    end
  end

  -- Reads a number as C's strtod does.
  local function read_number(text, at)
    local _, last = find(text, "^[+-]?0[xX]%x+", at)
    if last then
      local negative = byte(text, at) == 45
      local value = tonumber((gsub(sub(text, at, last), "^[+-]", "")))
      return negative and -value or value, last + 1
    end
    _, last = find(text, "^[+-]?%d+%.?%d*", at)
    if not last then _, last = find(text, "^[+-]?%.%d+", at) end
    if last then
      local _, with_exponent = find(text, "^[eE][+-]?%d+", last + 1)
      last = with_exponent or last
      return tonumber((gsub(sub(text, at, last), "^%+", ""))), last + 1
    end
    _, last = find(text, "^[+-]?[iI][nN][fF][iI][nN][iI][tT][yY]", at)
    if not last then _, last = find(text, "^[+-]?[iI][nN][fF]", at) end
    if last then return byte(text, at) == 45 and -huge or huge, last + 1 end
    _, last = find(text, "^[+-]?[nN][aA][nN]", at)
    if last then return -(0 / 0), last + 1 end
  end

  -- Whether a number is not valid JSON. decode_invalid_numbers allows these.
  local function is_odd(text, at)
    return find(text, "^%+", at) or find(text, "^%-?0[%dxX]", at) or find(text, "^%-?[iInN]", at)
  end

  -- Returns the kind of a token, its value, the next position, and the token's position. The kind
  -- is one of { } [ ] , : string number boolean null end. On an error the kind is "error", the value
  -- is the error's text, and there is no next position.
  local function token(text, at)
    at = find(text, "[^ \t\n\r]", at) or #text + 1
    local c = sub(text, at, at)
    if NAMES[c] then return c, nil, at + 1, at end
    if c == '"' then
      local value, after, where = read_string(text, at)
      if value then return "string", value, after, at end
      return "error", after, nil, where
    elseif c == "" or c == "\0" then return "end", nil, at, at
    elseif find(c, "[%d+-]") or settings.decode_invalid_numbers and
        (find(text, "^[iI][nN][fF]", at) or find(text, "^[nN][aA][nN]", at)) then
      if not settings.decode_invalid_numbers and is_odd(text, at) then
        return "error", "invalid number", nil, at
      end
      local value, after = read_number(text, at)
      if value then return "number", value, after, at end
      return "error", "invalid number", nil, at
    elseif c == "t" and sub(text, at, at + 3) == "true" then return "boolean", true, at + 4, at
    elseif c == "f" and sub(text, at, at + 4) == "false" then return "boolean", false, at + 5, at
    elseif c == "n" and sub(text, at, at + 3) == "null" then return "null", null, at + 4, at
    end
    return "error", "invalid token", nil, at
  end

  local function expected(what, kind, value, at)
    local found = NAMES[kind]
    if kind == "error" then found = value
    elseif not found then found = "T_" .. kind:upper() end
    return "Expected " .. what .. " but found " .. found .. " at character " .. at
  end

  local function too_deep(depth, at)
    return "Found too many nested data structures (" .. depth .. ") at character " .. at
  end

  local read_value

  -- read_object, read_array and read_value return the value and the next position; on an error nil,
  -- nil and the error's text.
  local function read_object(text, after, depth)
    local result = {}
    local kind, value, from, at = token(text, after)
    if kind == "}" then return result, from end
    while true do
      if kind ~= "string" then
        return nil, nil, expected("object key string", kind, value, at)
      end
      local key = value
      kind, value, from, at = token(text, from)
      if kind ~= ":" then return nil, nil, expected("colon", kind, value, at) end
      local item, problem
      kind, value, from, at = token(text, from)
      item, from, problem = read_value(text, depth, kind, value, from, at)
      if problem then return nil, nil, problem end
      result[key] = item
      kind, value, from, at = token(text, from)
      if kind == "}" then return result, from end
      if kind ~= "," then return nil, nil, expected("comma or object end", kind, value, at) end
      kind, value, from, at = token(text, from)
    end
  end

  local function read_array(text, after, depth)
    local result, n = {}, 0
    local kind, value, from, at = token(text, after)
    if kind == "]" then return result, from end
    while true do
      local item, problem
      item, from, problem = read_value(text, depth, kind, value, from, at)
      if problem then return nil, nil, problem end
      n = n + 1
      result[n] = item
      kind, value, from, at = token(text, from)
      if kind == "]" then return result, from end
      if kind ~= "," then return nil, nil, expected("comma or array end", kind, value, at) end
      kind, value, from, at = token(text, from)
    end
  end

  function read_value(text, depth, kind, value, from, at)
    if kind == "string" or kind == "number" or kind == "boolean" or kind == "null" then
      return value, from
    elseif kind == "{" then
      if depth >= settings.decode_max_depth then return nil, nil, too_deep(depth + 1, at) end
      return read_object(text, from, depth + 1)
    elseif kind == "[" then
      if depth >= settings.decode_max_depth then return nil, nil, too_deep(depth + 1, at) end
      return read_array(text, from, depth + 1)
    end
    return nil, nil, expected("value", kind, value, at)
  end

  function cjson.decode(...)
    if select("#", ...) ~= 1 then bad_argument(1, "decode", "expected 1 argument") end
    local text = ...
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" then
      bad_argument(1, "decode", "string expected, got " .. given(1, 1, text))
    end
    if #text >= 2 and (byte(text, 1) == 0 or byte(text, 2) == 0) then
      error("JSON parser does not support UTF-16 or UTF-32", 2)
    end
    local kind, value, from, at = token(text, 1)
    local result, after, problem = read_value(text, 0, kind, value, from, at)
    if problem then error(problem, 2) end
    kind, value, from, at = token(text, after)
    if kind ~= "end" then error(expected("the end", kind, value, at), 2) end
    return result
  end

  -- Settings: each function returns the current value, after setting it if there is an argument.
  local function whole(what, position, value, least, most)
    local n = tonumber(value)
    if not n or not (n >= least and n <= most) then
      if not n then
        bad_argument(position, what, "number expected, got " .. type(value), 3)
      end
      bad_argument(position, what,
        format("expected integer between %d and %d", least, most), 3)
    end
    return floor(n)
  end
  local function choice(what, value, allows_null)
    if value == true or value == "on" then return true end
    if value == false or value == "off" then return false end
    if allows_null and value == "null" then return "null" end
    if type(value) == "string" or type(value) == "number" then
      bad_argument(1, what, "invalid option '" .. tostring(value) .. "'", 3)
    end
    bad_argument(1, what, "string expected, got " .. type(value), 3)
  end
  local function count(what, most, ...)
    if select("#", ...) > most then bad_argument(most + 1, what, "found too many arguments", 3) end
  end

  function cjson.encode_sparse_array(...)
    count("encode_sparse_array", 3, ...)
    local convert, ratio, safe = ...
    if convert ~= nil then settings.convert = choice("encode_sparse_array", convert) end
    if ratio ~= nil then settings.ratio = whole("encode_sparse_array", 2, ratio, 0, 2147483647) end
    if safe ~= nil then settings.safe = whole("encode_sparse_array", 3, safe, 0, 2147483647) end
    return settings.convert, settings.ratio, settings.safe
  end
  for name, most in next, {
    encode_max_depth = 2147483647, decode_max_depth = 2147483647, encode_number_precision = 14,
  } do
    cjson[name] = function(...)
      count(name, 1, ...)
      if (...) ~= nil then settings[name] = whole(name, 1, (...), 1, most) end
      precision = "%." .. settings.encode_number_precision .. "g"
      return settings[name]
    end
  end
  for name, allows_null in next, {
    encode_keep_buffer = false, encode_invalid_numbers = true, decode_invalid_numbers = false,
  } do
    cjson[name] = function(...)
      count(name, 1, ...)
      if (...) ~= nil then settings[name] = choice(name, (...), allows_null) end
      return settings[name]
    end
  end
  return cjson
end

local cjson = new()
cjson.new = new
host.cjson = cjson
