-- take.lua takes from rows of one GCRA limit called main, which need no more than a
-- few numbers each: the case that matters most, and everything else is do.lua's.
--
-- KEYS[i]  the rows, each once
-- ARGV     now, in µs since 1970, or '' for the server's TIME; the ms by which rows
--          outlive their use; then for each row
--            a, b     the rate: a units per b µs
--            Bw, Bf   how long the burst takes to come back: Bw + Bf/a µs
--            Mw, Mf   the same of the burst and all debt
--            version, fingerprint
--            n        and n runs of count, cw, cf: so many calls of a cost that takes
--                     cw + cf/a µs to come back, in the order of their arrival
--
-- A run is what that many calls in a row would do at one now: they are admitted
-- until one does not fit, and a refused run does not stop the next.
--
-- It returns {now, …} with, for each row, how far TAT is ahead of now (w, f) before
-- the first run and the number of admitted calls of each run; or -1 and as many
-- numbers, if the row must be seen by do.lua, and then nothing of it has changed.

local now = tonumber(ARGV[1])
if not now then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
end
local keep = tonumber(ARGV[2])
local EPOCH = 1577836800000000 -- 2020, the zero of the times in rows
local floor = math.floor

local texts = {}
for k = 1, #KEYS do texts[k] = redis.call('GET', KEYS[k]) end

local out, i = {now}, 3
for k = 1, #KEYS do
	local a, b = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
	local version, fp, runs = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8])
	local text = texts[k]
	local w, f, mine = now, 0, true
	if text then
		local size, rowA, rowB, rowVersion = #text, 1, nil, 0
		if size == 12 then
			local high, low
			high, rowB, low = struct.unpack('>I4I4I4', text)
			w = EPOCH + high * 1048576 + floor(low / 4096)
		elseif size == 34 and string.byte(text) ~= 255 then
			local fpWas
			w, f, rowA, rowB, fpWas, rowVersion = struct.unpack('>I7I7I7I7I2I4', text)
			w = EPOCH + w
		end
		mine = rowB == b and rowA == a and rowVersion == version
		if w < now then
			w, f = now, 0
		else
			local cw, cf = now + ARGV[i + 4], tonumber(ARGV[i + 5])
			if w > cw or (w == cw and f > cf) then w, f = cw, cf end
		end
	end
	local limitW, limitF = now + ARGV[i + 2], tonumber(ARGV[i + 3])
	i = i + 9
	local n = #out
	if not mine then
		out[n + 1], out[n + 2] = -1, 0
		for r = 1, runs do out[n + 2 + r] = 0 end
	else
		local changed = false
		out[n + 1], out[n + 2] = w - now, f
		for r = 0, runs - 1 do
			local count, cw, cf = tonumber(ARGV[i + 3 * r]), tonumber(ARGV[i + 3 * r + 1]), tonumber(ARGV[i + 3 * r + 2])
			local admitted = 0
			while admitted < count do
				local nw, nf = w + cw, f + cf
				if nf >= a then nw, nf = nw + 1, nf - a end
				if nw > limitW or (nw == limitW and nf > limitF) then break end
				w, f, admitted = nw, nf, admitted + 1
			end
			out[n + 3 + r] = admitted
			changed = changed or admitted > 0
		end
		if changed then
			local tat, row = w - EPOCH, nil
			if version == 0 and a == 1 and b < 4294967296 then
				row = struct.pack('>I4I4I4', floor(tat / 1048576), b, (tat % 1048576) * 4096 + fp % 4096)
			else
				row = struct.pack('>I7I7I7I7I2I4', tat, f, a, b, fp % 65536, version)
			end
			redis.call('SET', KEYS[k], row, 'PX', floor((w - now) / 1000) + 1 + keep)
		end
	end
	i = i + 3 * runs
end
return out
