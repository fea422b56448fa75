-- take.lua takes from rows of one GCRA limit called main, which need no more than a
-- few numbers: the case that matters most, and everything else is do.lua's.
--
-- KEYS[k]      the rows, each once, all under the same numbers
-- ARGV[1]      these, as ten doubles, which takes no time to read:
--                a, b     the rate: a units per b µs
--                Bw, Bf   how long the burst takes to come back: Bw + Bf/a µs
--                Mw, Mf   the same of the burst and all debt
--                version, fingerprint
--                cw, cf   how long one unit takes to come back
-- ARGV[2]      now, in µs since 1970, or '' for the server's TIME
-- ARGV[3]      the ms by which rows outlive their use
-- ARGV[3 + k]  what to take from row k: '' for one unit, or runs of three doubles: count,
--              cw, cf, so many calls of a cost that takes cw + cf/a µs to come back.
--              All of these are left out if it is one unit from each
--
-- A run is what that many calls in a row would do at one now: they are admitted
-- until one does not fit, and a refused run does not stop the next.
--
-- It returns {now, …} with, for each row, how far TAT is ahead of now (w, f) before
-- the first run and the number of admitted calls of each run; or -1 and as many
-- numbers, if the row must be seen by do.lua, and then nothing of it has changed.
-- If it is one unit from each, there is less to say of each row: 2w + the admitted calls,
-- or -1, and then f, unless a is 1, which leaves f 0.

local a, b, Bw, Bf, Mw, Mf, version, fp, oneW, oneF = struct.unpack('>dddddddddd', ARGV[1])
local now = tonumber(ARGV[2])
if not now then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
end
local keep = tonumber(ARGV[3])
local EPOCH = 1577836800000000 -- 2020, the zero of the times in rows
local format, pack, unpackTable, call = string.format, struct.pack, unpack, redis.call
local unpack = struct.unpack
local limitW, mostW = now + Bw, now + Mw
local small = version == 0 and a == 1 and b < 4294967296
local each = #ARGV == 3 and ''
local brief = each and Mw < 2251799813685248 -- 2^51, so that 2w is exact

-- A row is kept until TAT, rounded up to a multiple of so many µs and a second. So the row
-- itself tells when it expires, and that is only told to Redis when it changes, which
-- would be the dearest part of a decision. do.lua does the same.
local quantum = math.max(4000000, 16 * b / a)

-- Everything is read before anything is written, so that an error changes nothing. MGET
-- does not tell a value of another type from none, but SET with NX will.
local texts
if #KEYS == 1 then
	texts = {call('GET', KEYS[1])}
else
	texts = call('MGET', unpackTable(KEYS))
end

local out, n = {now}, 1
for k = 1, #KEYS do
	local text, runs = texts[k], each or ARGV[3 + k]
	local w, f, was, mine, changed = now, 0, 0, true, false
	if text then
		local rowA, rowB, rowVersion, print = 1, nil, 0, nil
		if #text == 12 then
			local high, low
			high, rowB, low = unpack('>I4I4I4', text)
			print = low % 4096
			w = EPOCH + high * 1048576 + (low - print) / 4096
		elseif #text == 34 and string.byte(text) ~= 255 then
			w, f, rowA, rowB, print, rowVersion = unpack('>I7I7I7I7I2I4', text)
			w = EPOCH + w
		end
		mine, was = rowB == b and rowA == a and rowVersion == version and f < a, w
		if w < now then
			w, f = now, 0
		elseif w > mostW or (w == mostW and f > Mf) then
			-- Further than any debt: the clock was set back. It is written down also by a
			-- refusal, which would otherwise find it as far ahead the next time. But numbers of
			-- the same rate may allow more debt.
			mine = mine and print == fp % (#text == 12 and 4096 or 65536)
			w, f, changed = mostW, Mf, mine
		end
	end
	local first, at = n + 1, 1
	if brief then
		n, out[first] = first, mine and 2 * (w - now) or -1
		if a > 1 then
			n = n + 1
			out[n] = f
		end
		local nextW, nextF = w + oneW, f + oneF
		if nextF >= a then nextW, nextF = nextW + 1, nextF - a end
		if mine and (nextW < limitW or (nextW == limitW and nextF <= Bf)) then
			w, f, changed, out[first] = nextW, nextF, true, out[first] + 1
		end
	else
		out[first], out[n + 2] = mine and w - now or -1, f
		n = n + 2
		repeat
			local count, cw, cf, admitted = 1, oneW, oneF, 0
			if runs ~= '' then count, cw, cf, at = unpack('>ddd', runs, at) end
			if cf == 0 and cw > 0 and mine then -- as the loop below does, at once
				local room = limitW - w
				if f > Bf then room = room - 1 end
				if room < 0 then room = 0 else room = (room - room % cw) / cw end
				if room < count then admitted = room else admitted = count end
				w, changed = w + admitted * cw, changed or admitted > 0
				count = admitted
			end
			while mine and admitted < count do
				local nextW, nextF = w + cw, f + cf
				if nextF >= a then nextW, nextF = nextW + 1, nextF - a end
				if nextW > limitW or (nextW == limitW and nextF > Bf) then break end
				w, f, admitted, changed = nextW, nextF, admitted + 1, true
			end
			n = n + 1
			out[n] = admitted
		until at >= #runs
	end

	if changed then
		local tat, row = w - EPOCH, nil
		if tat < 0 then tat = 0 end
		if small then
			local low = tat % 1048576
			row = pack('>I4I4I4', (tat - low) / 1048576, b, low * 4096 + fp % 4096)
		else
			row = pack('>I7I7I7I7I2I4', tat, f, a, b, fp % 65536, version)
		end
		local since = w % quantum
		if text and w - since == was - was % quantum then
			call('SET', KEYS[k], row, 'KEEPTTL')
		else
			local ms = format('%d', (w - since + quantum - now) / 1000 + 1 + keep) -- else Redis does it, more slowly
			if text then
				call('PSETEX', KEYS[k], ms, row)
			elseif not call('SET', KEYS[k], row, 'PX', ms, 'NX') then
				out[first] = -1
			end
		end
	end
end
return out
