-- restore.lua writes entries of a record that the server has lost, for example in a
-- failover.
--
-- KEYS[1]  the record
-- ARGV     the version before the first entry; the ms to keep the record for; entries
--
-- It does nothing if the record has another version.

local last = redis.call('LINDEX', KEYS[1], -1)
local version = last and tonumber(string.match(last, '^%d+')) or 0
if version ~= tonumber(ARGV[1]) then return 0 end
for i = 3, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
redis.call('LTRIM', KEYS[1], -1000, -1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
