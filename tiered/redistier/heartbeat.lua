-- heartbeat.lua says that a node is alive, and counts those that are.
--
-- KEYS[1]  a sorted set: nodes by the instant of their last heartbeat, in µs since 1970
-- ARGV     the node; after how many µs of silence a node is dead; the ms to keep the set for
--
-- It returns how many nodes are alive, and TIME.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))

-- A clock that was set back, or that of a server which has taken over, would keep the dead alive.
local ahead = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
for _, node in ipairs(ahead) do
	redis.call('ZADD', KEYS[1], string.format('%.0f', now), node)
end

redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {redis.call('ZCARD', KEYS[1]), t[1], t[2]}
