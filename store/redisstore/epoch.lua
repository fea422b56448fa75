-- epoch.lua returns when the limiter was first started, by any process.
--
-- KEYS[1]  the instant, in µs since 1970
-- ARGV     now, or '' for the server's TIME; the ms to keep it for

local now = ARGV[1]
if now == '' then
	local t = redis.call('TIME')
	now = string.format('%.0f', t[1] * 1000000 + t[2])
end
redis.call('SET', KEYS[1], now, 'NX')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('GET', KEYS[1])
