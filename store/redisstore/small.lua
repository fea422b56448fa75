-- small.lua takes from several rows of one GCRA limit called main, each with limits of
-- its own: the usual request that is limited in more than one way, and the requests of
-- a node that decides locally in between. do.lua would do the same, but takes
-- four times as long, because it handles everything else, too.
--
-- KEYS[k]      the rows, each once
-- ARGV[1]      'all' if all charges are made or none, 'each' otherwise
-- ARGV[2]      now, in µs since 1970, or '' for the server's TIME
-- ARGV[3]      the ms that rows are kept after they equal unused ones
-- ARGV[3 + k]  doubles: the first eight of row k's limits, as take.lua has them; uw, uf: how
--              long the units used before take to be replenished; then for each charge to the
--              row cw, cf: how long its units take to be replenished
--
-- Units used before are charged first, whether they fit or not, and also if all charges are
-- then refused. The charges to a row are made one after the other at one now.
--
-- It returns {now, …} with, for each charge, row by row, how far TAT is ahead of now (w, f)
-- before the charge, and 1 if the charge fits; or {-1} if one of the rows needs do.lua, and
-- then nothing has changed. For a row with holds, of which none has expired, TAT is the
-- effective TAT, and the last value is 1 + 2 × the time until the row equals an unused one;
-- a refusal there needs do.lua, which can compute when the charge will fit.

local now = tonumber(ARGV[2])
if not now then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
end
local keep = tonumber(ARGV[3])
local all = ARGV[1] == 'all'
local EPOCH = 1577836800000000 -- 2020, the zero of the times in rows
local unpack, call, max = struct.unpack, redis.call, math.max

local function whole(x) return type(x) == 'number' and x % 1 == 0 and x > -9007199254740991 and x < 9007199254740991 end

-- heldRow returns a row with holds, as do.lua writes it, if it has exactly this GCRA limit
-- and no hold has expired.
local function heldRow(text, a, b, version, fp)
	local ok, t = pcall(cmsgpack.unpack, string.sub(text, 2))
	if not ok or type(t) ~= 'table' or #t ~= 6 or t[1] ~= version or t[2] ~= fp or not whole(t[3]) then return nil end
	local r, h = type(t[4]) == 'table' and #t[4] == 1 and t[4][1], t[6]
	if type(r) ~= 'table' or #r ~= 8 or r[1] ~= 'main' or r[2] ~= 'g' or r[3] ~= a or r[4] ~= b or not whole(r[7]) or not whole(r[8]) or r[8] < 0 then return nil end
	if type(h) ~= 'table' or #h ~= 6 or not whole(h[1]) or not whole(h[3]) or not whole(h[4]) or now >= h[3] then return nil end
	return t, r, h
end

-- Everything is read before anything is written, so that an error changes nothing. rows has
-- six values to write for each row: w, f, a, b, version, fingerprint; debits has
-- the same without the charges.
local out, n, rows, debits, texts, was, refused, held = {now}, 1, {}, {}, {}, {}, false, {}
for k = 1, #KEYS do
	local limits = ARGV[3 + k]
	local a, b, Bw, Bf, Mw, Mf, version, fp, uw, uf, at = unpack('>dddddddddd', limits)
	local mostW, limitW = now + Mw, now + Bw
	local text = call('GET', KEYS[k])
	local w, f, changed = now, 0, false
	if text then
		local rowA, rowB, rowVersion, same, hold = 1, nil, 0, false, nil
		if #text == 12 then
			local high, low
			high, rowB, low = unpack('>I4I4I4', text)
			w, same = EPOCH + high * 1048576 + (low - low % 4096) / 4096, low % 4096 == fp % 4096
		elseif #text == 34 and string.byte(text) ~= 255 then
			local print
			w, f, rowA, rowB, print, rowVersion = unpack('>I7I7I7I7I2I4', text)
			w, same = EPOCH + w, print == fp % 65536
		elseif string.byte(text) == 255 then
			local t, r
			t, r, hold = heldRow(text, a, b, version, fp)
			if not t or hold[1] * b > 9007199254740991 then return {-1} end -- exact below 2^53
			w, f, rowA, rowB, rowVersion, same, held[k] = r[7], r[8], a, b, version, true, {t = t, r = r}
		end
		if rowB ~= b or rowA ~= a or rowVersion ~= version or f >= a then return {-1} end
		texts[k], was[k] = text, w
		if w < now then
			w, f = now, 0
		elseif w > mostW or (w == mostW and f > Mf) then
			if not same then return {-1} end
			w, f, changed = mostW, Mf, true -- the clock was set back: see take.lua
		end
		if hold then -- effective TAT, and when the row equals an unused one: see do.lua
			local sf = hold[1] * b % a
			local sw = (hold[1] * b - sf) / a
			if sw > Mw or (sw == Mw and sf > Mf) then sw, sf = Mw, Mf end
			if now + sw > w or (now + sw == w and sf > f) then w, f = now + sw, sf end
			held[k].reset, held[k].last = now, hold[4]
			if hold[1] > 0 then held[k].reset = hold[4] + sw + (sf > 0 and 1 or 0) end
			if held[k].reset - now >= 2251799813685248 then return {-1} end -- 2^51: twice that must be exact
		end
	end
	if uw > 0 or uf > 0 then
		w, f = w + uw, f + uf
		if f >= a then w, f = w + 1, f - a end
		if w > mostW or (w == mostW and f > Mf) then w, f = mostW, Mf end
		changed, debits[k] = true, {w, f, a, b, version, fp}
	end
	while at <= #limits do
		local cw, cf
		cw, cf, at = unpack('>dd', limits, at)
		out[n + 1], out[n + 2], out[n + 3] = w - now, f, 0
		local nextW, nextF = w + cw, f + cf
		if nextF >= a then nextW, nextF = nextW + 1, nextF - a end
		if cw == 0 and cf == 0 then -- only read the state
			out[n + 3] = 1
		elseif nextW < limitW or (nextW == limitW and nextF <= Bf) then
			w, f, changed, out[n + 3] = nextW, nextF, true, 1
		elseif held[k] then
			return {-1}
		else
			refused = true
		end
		if held[k] then out[n + 3] = 1 + 2 * (held[k].reset - now) end
		n = n + 3
	end
	if changed then rows[k] = {w, f, a, b, version, fp} end
end
if refused and all then rows = debits end

for k, row in pairs(rows) do
	local w, f, a, b, version, fp = row[1], row[2], row[3], row[4], row[5], row[6]
	local tat, text = max(0, w - EPOCH), nil
	if version == 0 and a == 1 and b < 4294967296 then
		local low = tat % 1048576
		text = struct.pack('>I4I4I4', (tat - low) / 1048576, b, low * 4096 + fp % 4096)
	else
		text = struct.pack('>I7I7I7I7I2I4', tat, f, a, b, fp % 65536, version)
	end
	local quantum = max(4000000, 16 * b / a) -- when it expires: see take.lua
	local since = w % quantum
	if held[k] then
		local t, r = held[k].t, held[k].r
		t[3], r[7], r[8] = max(t[3], now), w, f
		local last = max(held[k].reset, held[k].last, w - since + quantum)
		call('PSETEX', KEYS[k], string.format('%d', (last - now) / 1000 + 1 + keep), '\255' .. cmsgpack.pack(t))
	elseif texts[k] and w - since == was[k] - was[k] % quantum then
		call('SET', KEYS[k], text, 'KEEPTTL')
	else
		call('PSETEX', KEYS[k], string.format('%d', (w - since + quantum - now) / 1000 + 1 + keep), text)
	end
end
return out
