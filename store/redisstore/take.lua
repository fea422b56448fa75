-- take.lua takes from rows of one GCRA limit called main, the most frequent case.
-- do.lua handles everything else.
--
-- KEYS[k]      the rows, each once, all with the same limits
-- ARGV[1]      the limits, as ten doubles, which are fast to read:
--                a, b     the rate: a units per b µs
--                Bw, Bf   how long the burst takes to be replenished: Bw + Bf/a µs
--                Mw, Mf   the same for the burst and the maximum debt
--                version, fingerprint
--                cw, cf   how long one unit takes to be replenished
-- ARGV[2]      now, in µs since 1970, or '' for the server's TIME
-- ARGV[3]      the ms that rows are kept after they equal unused ones
-- ARGV[3 + k]  what to take from row k: '' for one unit, or runs of three doubles: count,
--              cw, cf: count calls of a cost that takes cw + cf/a µs to be replenished.
--              All of these are omitted if one unit is taken from each row
--
-- A run is a number of equal calls at one now: they are admitted until one does not
-- fit, and a refused run does not stop the next.
--
-- It returns {now, …} with, for each row, how far TAT is ahead of now (w, f) before
-- the first run and the number of admitted calls of each run; or -1 and as many
-- values, if the row needs do.lua, and then the row is unchanged.
-- If one unit is taken from each row, the reply is shorter: for each row 2w + the admitted
-- calls, or -1, and then f, unless a is 1, since f is 0 then.

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

-- A row is kept until TAT, rounded up to a multiple of quantum, and keep ms longer. So the
-- expiry follows from the row itself, and is sent to Redis only when it changes: setting it
-- would be the most expensive part of a decision. do.lua does the same.
local quantum = math.max(4000000, 16 * b / a)

-- Everything is read before anything is written, so that an error changes nothing. MGET
-- returns nil for a value of another type, too, but SET with NX detects it.
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
			-- Further ahead than any debt: the clock was set back. A refusal writes the reduced
			-- TAT, too; otherwise it would stay ahead. But other limits of the same rate may allow
			-- more debt, so this is done only for rows of these limits.
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
			if cf == 0 and cw > 0 and mine then -- the loop below in one step
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
			local ms = format('%d', (w - since + quantum - now) / 1000 + 1 + keep) -- Redis would convert it more slowly
			if text then
				call('PSETEX', KEYS[k], ms, row)
			elseif not call('SET', KEYS[k], row, 'PX', ms, 'NX') then
				out[first] = -1
			end
		end
	end
end
return out
