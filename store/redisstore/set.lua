-- set.lua appends a change to the record of a policy's limits.
--
-- KEYS[1]  the record: a list of entries "version at body", the last 1,000
-- ARGV     the version that the caller has; now, in µs since 1970, or '' for the
--          server's TIME; the ms to keep the record for; the body
--
-- It returns the new version and its instant, or -1 if the record has another version
-- than the caller has.

local last = redis.call('LINDEX', KEYS[1], -1)
local version = last and tonumber(string.match(last, '^%d+')) or 0
if version ~= tonumber(ARGV[1]) then return {'-1', tostring(version)} end

local now = ARGV[2]
if now == '' then
	local t = redis.call('TIME')
	now = string.format('%.0f', t[1] * 1000000 + t[2])
end
redis.call('RPUSH', KEYS[1], (version + 1) .. ' ' .. now .. ' ' .. ARGV[4])
redis.call('LTRIM', KEYS[1], -1000, -1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {tostring(version + 1), now}
