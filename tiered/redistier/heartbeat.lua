-- heartbeat.lua says that a node is alive, and counts those that are.
--
-- KEYS[1]  a sorted set: nodes by the instant of their last heartbeat, in µs since 1970
-- ARGV     the node; after how many µs of silence a node is dead; the ms to keep the set for
--
-- It returns how many nodes are alive, and TIME.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local nodes = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf', 'WITHSCORES')
local alive = 1
for i = 1, #nodes, 2 do
	local node, last = nodes[i], tonumber(nodes[i + 1])
	if last < now - ARGV[2] then
		redis.call('ZREM', KEYS[1], node)
	elseif node ~= ARGV[1] then
		alive = alive + 1
		if last > now then
			-- A clock that was set back, or that of a server which has taken over, would keep the dead alive.
			redis.call('ZADD', KEYS[1], string.format('%.0f', now), node)
		end
	end
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {alive, t[1], t[2]}
