-- One script a line. (No error({1}): it ends redis-server 7.0.15.)
return 1
return nil
return false
return true
return 3.99
return -3.99
return 'text'
return {1,2,'x'}
return {1,nil,3}
return {nil,nil}
return {}
return {1,{2,{3}},'x',false,true}
return {a=1}
return {ok='fine'}
return {err='plain'}
return {err='ERR my error'}
return redis.error_reply('My Err')
return redis.error_reply('-WITH dash')
return redis.error_reply('')
return redis.status_reply('GOOD')
return 1e18
return 1e300
return 2^53
return 0/0
return 1/0
return KEYS
return ARGV
return {KEYS[1],ARGV[1],ARGV[2]}
return #ARGV
return #KEYS
return tostring(1.5)
return tostring(1e15)
return tostring(1e14)
return tostring(12345678901234567890)
return tonumber(ARGV[1] or '5')
return ARGV[1] + 1
return ARGV[1] .. 'x'
error('boom')
error({err='ERR from table'})
error({err='plain table'})
error()
error(nil)
error('')
error('with level', 0)
error('level 2', 2)
error(5)
return undefined_name
undefined_name = 1
return nil + 1
return nosuch()
return {} .. 'x'
return (
retrun 1
return 'unfinished
local t = nil return t.x
return redis.call('get', KEYS[1])
return redis.call('set', KEYS[1], ARGV[1])
return redis.call('incr', KEYS[1])
return redis.pcall('incr', KEYS[1])
return redis.pcall('incr', KEYS[1])['err']
local r = redis.pcall('incr', KEYS[1]) if type(r) == 'table' then return r.err end return r
return redis.call('lrange', KEYS[1], 0, -1)
return redis.call('set', KEYS[1], 1.5)
redis.call('set', KEYS[1], 1e15) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 1e17) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 0.1) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 2^63) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 2^53 + 1) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 100) return redis.call('get', KEYS[1])
redis.call('set', KEYS[1], 'x') error('after a write')
redis.call('set', KEYS[1], 'x') return redis.call('lpush', KEYS[1], 'y')
redis.call('del', KEYS[1]) redis.call('zadd', KEYS[1], 1.1, 'a', 3, 'b', '1658492212132.07', 'c') return redis.call('zrange', KEYS[1], 0, -1, 'withscores')
redis.call('del', KEYS[1]) redis.call('zadd', KEYS[1], 0.1, 'a') return redis.call('zscore', KEYS[1], 'a') .. '!'
return type(redis.call('zscore', KEYS[1], 'nosuch'))
return type(redis.call('get', 'nosuchkey'))
return redis.call('get', 'nosuchkey') == false
return redis.call()
return redis.call('nosuch')
return redis.call('get')
return redis.call('get', {})
return redis.call('get', nil)
return redis.call('get', true)
return redis.call('get', 'a', 'b')
return redis.call('subscribe', 'x')
return redis.call('multi')
return redis.call('eval', 'return 1', 0)
return redis.call('blpop', 'nosuch', 0)
return redis.call('blpop', KEYS[1], 0)
return redis.call('xread', 'BLOCK', '0', 'STREAMS', 'nosuch', '$')
return redis.call('hello', '3')
return redis.call('auth', 'x')
return redis.call('watch', 'x')
return redis.call('script', 'flush')
return redis.pcall('nosuch')
return redis.pcall('get')
return redis.pcall('subscribe', 'x')
local ok, e = pcall(redis.call, 'nosuch') return {tostring(ok), type(e), type(e) == 'table' and e.err or tostring(e)}
local ok, e = pcall(redis.call, 'incr', KEYS[1]) return {tostring(ok), type(e)}
local ok, e = pcall(error, 'x') return e
local ok, e = pcall(function() return nil + 1 end) return e
return redis.call('select', 1)
redis.call('select', 1) return redis.call('set', 'inner', '1')
return redis.call('ping')
return redis.call('ping').ok
return redis.call('set', KEYS[1], 'v').ok
return redis.call('echo', 'hi')
return redis.call('type', KEYS[1])
return redis.call('type', KEYS[1]).ok
return redis.call('exists', KEYS[1])
return redis.call('setnx', KEYS[1], 'v')
if redis.call('setnx', KEYS[1], 'v') then return 'true' else return 'false' end
return redis.sha1hex('')
return redis.sha1hex('abc')
return redis.sha1hex()
return redis.log(redis.LOG_DEBUG, 'x')
return redis.log('x')
return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}
return {redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL}
return redis.REDIS_VERSION
return redis.REDIS_VERSION_NUM
return redis.replicate_commands()
return redis.set_repl(redis.REPL_ALL)
return redis.breakpoint()
return redis.nosuch
redis.nosuch = 1
string.find = 1
return _VERSION
return type(_G)
return type(os)
return os.clock() >= 0
return type(io)
return type(debug)
return type(require)
return type(loadstring)
return type(collectgarbage)
return loadstring('return 5')()
return type(loadstring('\27Lua'))
return string.format('%s %d %5.2f %q', 'a', 3, 1.239, 'q')
return string.rep('ab', 3)
return ('abc'):upper()
return {string.find('hello', 'l+')}
return string.gsub('hello', 'l', 'L')
return table.concat({1,2,3}, ',')
return unpack({1,2,3})
return select('#', 1, 2, 3)
return math.floor(3.7)
return math.huge
return -math.huge
return cjson.encode({1,2,3})
return cjson.encode({a=1})
return cjson.encode({})
return cjson.encode({1.5, 'x', true, false, cjson.null})
return cjson.encode(1e15)
return cjson.encode(0.1)
return cjson.encode('é\0\1"\\/\n')
return cjson.encode({[1]=1,[3]=3})
return cjson.decode('[1,2,"x",true,null]')
return cjson.decode('{"a":{"b":[1,2]}}').a.b[2]
return cjson.decode('{bad}')
return cjson.decode('')
return cjson.decode('"\\u00e9"')
return cjson.decode('1e400')
return tostring(cjson.decode('null'))
return cjson.encode(cjson.decode('{"a":[]}'))
return cmsgpack.pack({1,2,3})
return cmsgpack.pack('a', 1, -1, 1.5, true, nil)
return cmsgpack.pack({a=1})
return {cmsgpack.unpack(cmsgpack.pack(1, 'two', {3}))}
return cmsgpack.unpack('\255')
local t = {} for i = 1, 10 do t[i] = i * i end return t
local t = {} for i = 0, ARGV[1] - 1 do t[#t + 1] = i end return t
local n = 0 for k, v in pairs({1,2,3}) do n = n + v end return n
local t = setmetatable({}, {__index = function(_, k) return k .. '!' end}) return t.x
local f f = function(n) return f(n + 1) + 1 end return f(1)
return tostring(nil) .. tostring(true)
return #('a\0b')
return 'a\0b'
return '10' == 10
return '10' + 5
return 10 .. ''
return 7 % 3 .. ',' .. -7 % 3
local co = coroutine.create(function() return 1 end) return {coroutine.resume(co)}
return rawget(_G, 'nosuch')
setmetatable(_G, {})
return getmetatable('').__index == string
return {1, 2, err='both'}
return {ok='with\r\nnewline'}
return {err='with\r\nnewline'}
return {ok=5}
return {err=5}
return {'a', {err='inner error'}, {ok='inner ok'}}
#!lua\nreturn 1
return redis.call('publish', 'news', 'x')
return redis.call('SET', KEYS[1], 'v', 'GET')
return redis.call('expire', KEYS[1], 100)
return redis.call('client', 'getname')
return redis.call('info') ~= nil
return type(redis.call('time')[1])
return redis.call('mget', 'a', 'nosuchkey', 'b')
return {redis.call('get', 'nosuchkey'), 'x'}
