-- do.lua carries out any operation on any rows, in one step.
--
-- It is package algo's Ledger, at the resolution of a microsecond: rows are read
-- first, all charges are carried out in memory, and only then is each row that
-- changed written, once. So a call that fails has changed nothing, although Redis
-- does not roll scripts back.
--
-- KEYS[i]  the rows
-- ARGV[1]  the call, in JSON:
--   op       "each", "all", "hold", "peek", "debit", "settle", "renew", "reset" or "refund"
--   now      µs since 1970, or absent: then it is the server's TIME
--   keep     ms by which rows outlive their use
--   ttl      µs that holds live, or -1: until they are settled
--   epoch    µs: when the limiter was first started
--   most     how many holds a key may have
--   lost     rows of later versions are taken as they are: nobody knows these any more
--   sets     the numbers that the charges are under, see numbers.go, each with
--     past   what was set: {version, at, fingerprint of the old numbers, the new set}
--     since  past begins behind this version
--   charges  {place in KEYS, place in sets, cost, id of the hold, µs}
--   used     absent, or for each charge the units to charge before anything is decided,
--            whether they fit or not, and also if all charges are then refused
--
-- It returns {status, now, …}: status 0 with the outcomes, six numbers for each
-- charge; 1 if a row is of a later version than its set; 2, the place of a charge and
-- a version, if the past of its set must begin behind that; 3 if a set's calendar is
-- not that of now; 4, and the place of a charge, if the units in use do not fit its
-- numbers. Places are counted from 1.

local call = cjson.decode(ARGV[1])
local now = call.now
if not now then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
end

local EPOCH = 1577836800000000 -- 2020, the zero of the times in small rows
local NEVER = 9007199254740991
local FORFEITED = -1
local FAR = 2251799813685248 -- 2^51 µs: further ahead than any debt
local PARTS = 2251799813685247 -- the most of a rate's a and b, and of a period
local HELD = 4 -- in the sixth number of an outcome, a refusal's: holds are open
local MONTH = 2592000000 -- ms, for rows whose holds have no end
local floor, max, min = math.floor, math.max, math.min

-- Exact arithmetic. Numbers are doubles, so whole ones are exact below 2^53.

-- halves splits x such that products of halves are exact (Veltkamp).
local function halves(x)
	local c = 134217729 * x
	local high = c - (c - x)
	return high, x - high
end

-- lost returns what rounding took from the product p of x and y (Dekker).
local function lost(x, y, p)
	local xh, xl = halves(x)
	local yh, yl = halves(y)
	return ((xh * yh - p) + xh * yl + xl * yh) + xl * yl
end

-- muldiv returns floor(x * y / z) and the remainder, for x and y below 2^53, z
-- below 2^51 and a quotient below 2^53.
local function muldiv(x, y, z)
	local p = x * y
	local q = floor(p / z)
	if p <= NEVER then
		return q, p - q * z
	end
	local b = q * z
	local rest = (p - b) + (lost(x, y, p) - lost(q, z, b))
	while rest < 0 do q, rest = q - 1, rest + z end
	while rest >= z do q, rest = q + 1, rest - z end
	return q, rest
end

-- Instants of GCRA are pairs: w + f/a µs, the rate being a units per b µs.

local function later(w1, f1, w2, f2)
	if w1 > w2 or (w1 == w2 and f1 > f2) then return w1, f1 end
	return w2, f2
end

local function after(w1, f1, w2, f2)
	return w1 > w2 or (w1 == w2 and f1 > f2)
end

local function plus(a, w1, f1, w2, f2)
	local w, f = w1 + w2, f1 + f2
	if f >= a then return w + 1, f - a end
	return w, f
end

local function minus(a, w1, f1, w2, f2)
	local w, f = w1 - w2, f1 - f2
	if f < 0 then return w - 1, f + a end
	return w, f
end

-- span returns how long units take to come back.
local function span(r, units)
	if units * r.b / r.a >= NEVER / 2 then return (NEVER - 1) / 2, 0 end
	return muldiv(units, r.b, r.a)
end

-- paid returns how many units come back in w + f/a µs, and the rest in parts of b.
local function paid(r, w, f)
	if w * r.a / r.b >= NEVER / 2 then return (NEVER - 1) / 2, 0 end -- no debt is that large: the clock was set back
	local units, rest = muldiv(w, r.a, r.b)
	rest = rest + f
	if rest >= r.b then return units + floor(rest / r.b), rest % r.b end
	return units, rest
end

-- Rules. Each kind has the functions of algo's Rule, under the same names. r is
-- the rule, s its state, H the holds in order of expiry, with their sum in H.units.

local kinds = {}

local gcra = {}
kinds.g = gcra

function gcra.fresh(r, epoch)
	if not r.mw then return {w = 0, f = 0} end
	local w, f = plus(r.a, epoch, 0, r.mw, r.mf)
	return {w = w, f = f}
end

-- raised returns from + units, at most as far as a TAT may be ahead.
local function raised(r, w, f, units, cw, cf)
	local sw, sf = span(r, units)
	w, f = plus(r.a, w, f, sw, sf)
	if after(w, f, cw, cf) then return cw, cf end
	return w, f
end

local function effective(r, s, H)
	local w, f = later(s.w, s.f, now, 0)
	local cw, cf = now + r.Mw, r.Mf
	if after(w, f, cw, cf) then w, f = cw, cf end
	local sum = H.units
	for i = 1, #H do
		local h = H[i]
		local rw, rf = raised(r, min(h.expiry, now), 0, sum, cw, cf)
		w, f = later(w, f, rw, rf)
		if h.expiry > now then break end
		sum = sum - h.units
	end
	return w, f
end

function gcra.admits(r, s, H, cost)
	if cost > r.cap then return false end
	local w, f = effective(r, s, H)
	local cw, cf = span(r, cost)
	w, f = plus(r.a, w, f, cw, cf)
	return not after(w, f, now + r.Bw, r.Bf)
end

function gcra.charge(r, s, H, cost)
	local w, f = effective(r, s, H)
	s.w, s.f = raised(r, w, f, cost, now + r.Mw, r.Mf)
end

function gcra.fold(r, s, H)
	local w, f = effective(r, s, H)
	if after(w, f, now, 0) then s.w, s.f = w, f end
end

function gcra.refund(r, s, H, at, units)
	local w, f = effective(r, s, H)
	local sw, sf = span(r, units)
	s.w, s.f = minus(r.a, w, f, sw, sf)
	return units
end

-- undo gives back units that no hold has kept in place since at: what has been
-- paid off meanwhile may have been taken by others, so that is kept.
function gcra.undo(r, s, H, at, units)
	local w, f = effective(r, s, H)
	local sw, sf = span(r, units)
	sw = sw - (now - at)
	if sw < 0 then return 0 end
	s.w, s.f = minus(r.a, w, f, sw, sf)
	return units
end

function gcra.reset(r, s) s.w, s.f = 0, 0 end

function gcra.remaining(r, s, H)
	local w, f = effective(r, s, H)
	w, f = minus(r.a, now + r.Bw, r.Bf, w, f)
	if w < 0 then return 0 end
	return (paid(r, w, f))
end

-- roomAt returns the first instant at which TAT leaves room, assuming that holds run
-- to their expiry.
local function roomAt(r, s, H, roomW, roomF)
	local w, f = later(s.w, s.f, now, 0)
	if after(w, f, now + r.Mw, r.Mf) then w, f = now + r.Mw, r.Mf end
	local sum = H.units
	for i = 1, #H do
		local h = H[i]
		local hw, hf = span(r, sum)
		if h.expiry <= now or after(hw, hf, roomW, roomF) then
			if h.expiry == NEVER then return NEVER end
			local ew, ef = raised(r, h.expiry, 0, sum, h.expiry + r.Mw, r.Mf)
			w, f = later(w, f, ew, ef)
		end
		sum = sum - h.units
	end
	w, f = minus(r.a, w, f, roomW, roomF)
	if not after(w, f, now, 0) then return now end
	if f > 0 then w = w + 1 end
	return w
end

function gcra.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	local cw, cf = span(r, cost)
	return roomAt(r, s, H, minus(r.a, r.Bw, r.Bf, cw, cf))
end

function gcra.resetAt(r, s, H) return roomAt(r, s, H, 0, 0) end

function gcra.used(r, s, H)
	local w, f = effective(r, s, H)
	local units, rest = paid(r, minus(r.a, w, f, now, 0))
	if rest > 0 then return units + 1 end
	return units
end

function gcra.counts() return true end

-- owes puts a debt of units and rest/of a unit into a state, or says that it does
-- not fit. What cannot be refused any more is cut.
local function owes(r, units, rest, of, cut)
	local w, f = span(r, units)
	if rest > 0 then
		local parts, more = muldiv(rest, r.b, of)
		if more > 0 then parts = parts + 1 end
		w, f = plus(r.a, w, f, floor(parts / r.a), parts % r.a)
	end
	if after(w, f, r.Mw, r.Mf) then
		if not cut then return nil end
		w, f = r.Mw, r.Mf
	end
	return {w = now + w, f = f}
end

function gcra.book(r, used, cut) return owes(r, used, 0, 1, cut) end

function gcra.adopt(r, old, s, H, cut)
	if old.kind ~= 'g' then return false end
	local w, f = effective(old, s, H)
	if not after(w, f, now, 0) then return true, {w = 0, f = 0} end
	w, f = minus(old.a, w, f, now, 0)
	local units, rest = paid(old, w, f)
	return true, owes(r, units, rest, old.b, cut)
end

-- Fixed windows, of equal length or of a calendar.

local fixed = {}
kinds.f = fixed

local function windowOf(r, at)
	if r.cal then
		if at < r.cal[2] then return r.cal[1], r.cal[2] end
		return r.cal[2], r.cal[3]
	end
	local s = at - at % r.per
	return s, s + r.per
end

local function fixedNow(r, s)
	if s.e > now then return s.s, s.e, s.used end
	local b, e = windowOf(r, now)
	return b, e, 0
end

function fixed.fresh(r, epoch)
	if r.miss then
		local b, e = windowOf(r, now)
		if b <= epoch and epoch < e then return {s = b, e = e, used = r.miss} end
	end
	return {s = 0, e = 0, used = 0}
end

function fixed.remaining(r, s)
	local _, _, used = fixedNow(r, s)
	return max(0, r.cap - used)
end

function fixed.charge(r, s, H, cost)
	s.s, s.e, s.used = fixedNow(r, s)
	s.used = min(s.used + cost, NEVER)
end

function fixed.counts(r, s, at)
	local b, e = fixedNow(r, s)
	return at ~= FORFEITED and b <= at and at < e
end

function fixed.refund(r, s, H, at, units)
	if not fixed.counts(r, s, at) then return 0 end
	s.s, s.e, s.used = fixedNow(r, s)
	local back = min(units, s.used)
	s.used = s.used - back
	return back
end

function fixed.reset(r, s, H, i)
	if s.e <= now then -- nothing was charged in the window of now, whose end a row may not know
		s.s, s.e, s.used = 0, 0, 0
		return
	end
	local held = 0
	for _, h in ipairs(H) do
		if fixed.counts(r, s, h.at[i]) then held = held + h.units end
	end
	s.used = held
end

function fixed.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	local _, e, used = fixedNow(r, s)
	if used + cost <= r.cap then return now end
	return e
end

function fixed.resetAt(r, s)
	local _, e, used = fixedNow(r, s)
	if used == 0 then return now end
	return e
end

function fixed.used(r, s)
	local _, _, used = fixedNow(r, s)
	return used
end

function fixed.book(r, used)
	local b, e = windowOf(r, now)
	return {s = b, e = e, used = used}
end

function fixed.adopt(r, old, s)
	if old.kind ~= 'f' then return false end
	local b, e = windowOf(r, now)
	if s.s ~= b or s.e ~= e then return false end
	return true, {s = b, e = e, used = s.used}
end

-- Windows that open with the first charge.

local anchored = {}
kinds.a = anchored

local function anchoredNow(r, s)
	if s.s == 0 or now >= s.s + r.per then return now, 0 end
	return s.s, s.used
end

function anchored.fresh(r, epoch)
	if r.miss then return {s = epoch, used = r.miss} end
	return {s = 0, used = 0}
end

function anchored.remaining(r, s)
	local _, used = anchoredNow(r, s)
	return max(0, r.cap - used)
end

function anchored.charge(r, s, H, cost)
	s.s, s.used = anchoredNow(r, s)
	s.used = min(s.used + cost, NEVER)
end

function anchored.counts(r, s, at)
	local b, used = anchoredNow(r, s)
	return used > 0 and at >= b
end

function anchored.refund(r, s, H, at, units)
	if not anchored.counts(r, s, at) then return 0 end
	s.s, s.used = anchoredNow(r, s)
	local back = min(units, s.used)
	s.used = s.used - back
	if s.used == 0 then s.s = 0 end
	return back
end

function anchored.reset(r, s, H, i)
	local held = 0
	for _, h in ipairs(H) do
		if anchored.counts(r, s, h.at[i]) then held = held + h.units end
	end
	s.s, s.used = anchoredNow(r, s)
	s.used = held
	if held == 0 then s.s = 0 end
end

function anchored.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	local b, used = anchoredNow(r, s)
	if used + cost <= r.cap then return now end
	return b + r.per
end

function anchored.resetAt(r, s)
	local b, used = anchoredNow(r, s)
	if used == 0 then return now end
	return b + r.per
end

function anchored.used(r, s)
	local _, used = anchoredNow(r, s)
	return used
end

function anchored.book(r, used)
	if used == 0 then return {s = 0, used = 0} end
	return {s = now, used = used}
end

function anchored.adopt(r, old, s)
	if old.kind ~= 'a' or old.per ~= r.per then return false end
	return true, {s = s.s, used = s.used}
end

-- The estimated sliding window.

local sliding = {}
kinds.s = sliding

local function slidingNow(r, s)
	local b = now - now % r.per
	if s.s >= b then return s.s, s.cur, s.prev end
	if s.s + r.per == b then return b, 0, s.cur end
	return b, 0, 0
end

local function estimate(r, s)
	local b, cur, prev = slidingNow(r, s)
	local covered, rest = muldiv(prev, r.per - max(0, now - b), r.per)
	if rest > 0 then covered = covered + 1 end
	return min(covered + cur, NEVER)
end

function sliding.fresh(r, epoch)
	if r.miss then return {s = epoch - epoch % r.per, cur = r.miss, prev = 0} end
	return {s = 0, cur = 0, prev = 0}
end

function sliding.remaining(r, s) return max(0, r.cap - estimate(r, s)) end

function sliding.charge(r, s, H, cost)
	s.s, s.cur, s.prev = slidingNow(r, s)
	s.cur = min(s.cur + cost, NEVER)
end

-- into says which counter a charge at at went into.
local function into(r, s, at)
	local b = slidingNow(r, s)
	if at == FORFEITED then return nil end
	if b <= at and at < b + r.per then return 'cur' end
	if b - r.per <= at and at < b then return 'prev' end
	return nil
end

function sliding.counts(r, s, at) return into(r, s, at) == 'cur' end

function sliding.refund(r, s, H, at, units)
	local which = into(r, s, at)
	if not which then return 0 end
	s.s, s.cur, s.prev = slidingNow(r, s)
	local back = min(units, s[which])
	s[which] = s[which] - back
	return back
end

function sliding.reset(r, s, H, i)
	local held = {cur = 0, prev = 0}
	for _, h in ipairs(H) do
		local which = into(r, s, h.at[i])
		if which then held[which] = held[which] + h.units end
	end
	s.s = slidingNow(r, s)
	s.cur, s.prev = held.cur, held.prev
end

-- falls returns how far into a window the weight of prev has fallen to room.
local function falls(r, prev, room)
	return r.per - (muldiv(room, r.per, prev))
end

function sliding.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	if sliding.remaining(r, s) >= cost then return now end
	local b, cur, prev = slidingNow(r, s)
	local room = r.cap - cost - cur
	if room >= 0 then return b + falls(r, prev, room) end
	return b + r.per + falls(r, cur, r.cap - cost)
end

function sliding.resetAt(r, s)
	local b, cur, prev = slidingNow(r, s)
	if cur > 0 then return b + 2 * r.per end
	if prev > 0 then return b + r.per end
	return now
end

function sliding.used(r, s) return estimate(r, s) end

function sliding.book(r, used)
	return {s = now - now % r.per, cur = used, prev = 0}
end

function sliding.adopt(r, old, s)
	if old.kind ~= 's' or old.per ~= r.per then return false end
	return true, {s = s.s, cur = s.cur, prev = s.prev}
end

-- The log: pairs of an instant and the units taken then, one after the other.

local log = {}
kinds.l = log

-- live forgets what has left, and returns the sum of the rest.
local function live(r, s)
	local gone, sum = 0, 0
	for i = 1, #s, 2 do
		if s[i] + r.per <= now then gone = i + 1 else sum = sum + s[i + 1] end
	end
	if gone > 0 then
		local n = #s
		for i = 1, n do s[i] = s[i + gone] end
	end
	return sum
end

local function append(r, s, at, units)
	local n = #s
	if n > 0 and (at <= s[n - 1] or n / 2 >= r.cap) then
		s[n - 1] = max(s[n - 1], at)
		s[n] = min(s[n] + units, NEVER)
		return
	end
	s[n + 1], s[n + 2] = at, units
end

function log.fresh(r, epoch)
	if r.miss then return {epoch, r.miss} end
	return {}
end

function log.remaining(r, s) return max(0, r.cap - live(r, s)) end

function log.charge(r, s, H, cost)
	if cost == 0 then return end
	live(r, s)
	append(r, s, now, cost)
end

-- entry returns where a charge at at is counted: in the first entry that is not
-- older, as it may have joined a younger one.
local function entry(r, s, at)
	live(r, s)
	if at == FORFEITED or at + r.per <= now then return nil end
	for i = 1, #s, 2 do
		if s[i] >= at then return i end
	end
	return nil
end

function log.counts(r, s, at) return entry(r, s, at) ~= nil end

function log.refund(r, s, H, at, units)
	local i = entry(r, s, at)
	if not i then return 0 end
	local back = min(units, s[i + 1])
	s[i + 1] = s[i + 1] - back
	if s[i + 1] == 0 then
		table.remove(s, i)
		table.remove(s, i)
	end
	return back
end

function log.reset(r, s, H, i)
	local held = {}
	for _, h in ipairs(H) do
		local k = entry(r, s, h.at[i])
		if k and h.units > 0 then held[#held + 1] = {s[k], h.units} end
	end
	table.sort(held, function(x, y) return x[1] < y[1] end)
	for k = #s, 1, -1 do s[k] = nil end
	for _, e in ipairs(held) do append(r, s, e[1], e[2]) end
end

function log.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	local at, sum = now, live(r, s)
	for i = 1, #s, 2 do
		if sum + cost <= r.cap then break end
		sum = sum - s[i + 1]
		at = s[i] + r.per
	end
	return at
end

function log.resetAt(r, s)
	live(r, s)
	if #s == 0 then return now end
	return s[#s - 1] + r.per
end

function log.used(r, s) return min(live(r, s), NEVER) end

function log.book(r, used)
	if used == 0 then return {} end
	return {now, used}
end

function log.adopt(r, old, s)
	if old.kind ~= 'l' or old.per ~= r.per then return false end
	local copy = {}
	for i = 1, #s do copy[i] = s[i] end
	return true, copy
end

-- Slots: the holds are the state.

local slots = {}
kinds.c = slots

function slots.fresh() return {} end

function slots.remaining(r, s, H)
	local held = H.units
	for _, h in ipairs(H) do
		if h.expiry > now then break end
		held = held - h.units
	end
	return max(0, r.cap - held)
end

function slots.retryAt(r, s, H, cost)
	if cost > r.cap then return NEVER end
	local at, held = now, H.units
	for _, h in ipairs(H) do
		if held + cost <= r.cap then break end
		held = held - h.units
		at = max(at, h.expiry)
	end
	return at
end

function slots.resetAt(r, s, H)
	if #H == 0 then return now end
	return max(now, H[#H].expiry)
end

function slots.charge() end
function slots.refund() return 0 end
function slots.reset() end
function slots.used() return 0 end
function slots.counts() return false end
function slots.book() return {} end
function slots.adopt() return true, {} end

for _, kind in pairs(kinds) do
	kind.fold = kind.fold or function() end
	kind.undo = kind.undo or kind.refund
	kind.admits = kind.admits or function(r, s, H, cost) return kind.remaining(r, s, H) >= cost end
end

-- Rows. A row has a version, the fingerprint of its numbers, the last now, rules
-- with what their states mean, states and holds.
--
-- What is kept of one GCRA called main without holds is a small row: 12 bytes if a
-- unit is a whole number of µs, below 2^32, and nothing was ever set, else 34.
-- take.lua reads and writes only these. All others begin with a byte 255, which
-- no small row does, and are MessagePack.
--
-- What is none of these is an error about that key. All that arithmetic relies on is checked, so
-- that a value of somebody else's cannot be taken for a row and end the script.

-- whole says whether x is a whole number from least to most.
local function whole(x, least, most)
	return type(x) == 'number' and x >= least and x <= most and x == floor(x)
end

local function isRate(a, b, f) return whole(a, 1, PARTS) and whole(b, 1, PARTS) and whole(f, 0, a - 1) end

-- counts says whether the entries of a list from one place to another are counts or instants.
local function areCounts(list, from, to)
	for i = from, to do
		if not whole(list[i], 0, NEVER) then return false end
	end
	return true
end

-- isRule checks a rule with its state as rows have them, of each kind.
local isRule = {
	g = function(r)
		return #r == 8 and isRate(r[3], r[4], r[8]) and whole(r[5], 0, NEVER) and whole(r[6], 0, r[3] - 1) and whole(r[7], -NEVER, NEVER)
	end,
	f = function(r) return #r == 6 and whole(r[3], 0, PARTS) and areCounts(r, 4, 6) end,
	a = function(r) return #r == 5 and whole(r[3], 1, PARTS) and areCounts(r, 4, 5) end,
	s = function(r) return #r == 6 and whole(r[3], 1, PARTS) and areCounts(r, 4, 6) end,
	l = function(r)
		return #r == 5 and whole(r[3], 1, PARTS) and whole(r[4], 1, NEVER) and type(r[5]) == 'table' and #r[5] % 2 == 0 and areCounts(r[5], 1, #r[5])
	end,
	c = function(r) return #r == 2 end,
}

local function areRules(list)
	if type(list) ~= 'table' or #list == 0 then return false end
	for _, r in ipairs(list) do
		if type(r) ~= 'table' or type(r[1]) ~= 'string' or not isRule[r[2]] or not isRule[r[2]](r) then return false end
	end
	return true
end

local function areHolds(list, rules)
	if type(list) ~= 'table' then return false end
	for _, h in ipairs(list) do
		if type(h) ~= 'table' or type(h[1]) ~= 'string' or not areCounts(h, 2, 3) or not whole(h[4], FORFEITED, NEVER) then return false end
		if h[5] and (type(h[5]) ~= 'table' or #h[5] ~= rules) then return false end
		for _, at in ipairs(h[5] or {}) do
			if not whole(at, FORFEITED, NEVER) then return false end
		end
	end
	return true
end

local function holdsOf(list, n)
	local H = {units = 0}
	for i, h in ipairs(list) do
		local at = h[5]
		if not at then
			at = {}
			for k = 1, n do at[k] = h[4] end
		end
		H[i] = {id = h[1], units = h[2], expiry = h[3], at = at}
		H.units = H.units + h[2]
	end
	return H
end

-- smallRow returns nil if it is none.
local function smallRow(text)
	local w, a, b, f, fp, version, bits = 0, 1, 0, 0, 0, 0, 65536
	if #text == 12 then
		local high, low
		high, b, low = struct.unpack('>I4I4I4', text)
		w, fp, bits = high * 1048576 + floor(low / 4096), low % 4096, 4096
	else
		w, f, a, b, fp, version = struct.unpack('>I7I7I7I7I2I4', text)
	end
	if not isRate(a, b, f) or not whole(w, 0, NEVER - EPOCH) then return nil end
	local rule = {name = 'main', kind = 'g', a = a, b = b, Mw = FAR, Mf = 0}
	return {version = version, fp = fp, bits = bits, last = 0, rules = {rule}, states = {{w = w + EPOCH, f = f}}, holds = {units = 0}}
end

-- bigRow returns nil if it is none.
local function bigRow(text)
	local ok, t, more = pcall(cmsgpack.unpack, string.sub(text, 2))
	if not ok or more ~= nil or type(t) ~= 'table' or #t ~= 5 then return nil end
	if not areCounts(t, 1, 3) or not areRules(t[4]) or not areHolds(t[5], #t[4]) then return nil end
	local row = {version = t[1], fp = t[2], last = t[3], rules = {}, states = {}}
	for i, r in ipairs(t[4]) do
		local rule, state = {name = r[1], kind = r[2]}, {}
		if rule.kind == 'g' then
			rule.a, rule.b, rule.Mw, rule.Mf = r[3], r[4], r[5], r[6]
			state.w, state.f = r[7], r[8]
		elseif rule.kind == 'f' then
			rule.per, state.s, state.e, state.used = r[3], r[4], r[5], r[6]
			if rule.per == 0 then rule.cal = {state.s, state.e, 2 * state.e - state.s} end
		elseif rule.kind == 'a' then
			rule.per, state.s, state.used = r[3], r[4], r[5]
		elseif rule.kind == 's' then
			rule.per, state.s, state.cur, state.prev = r[3], r[4], r[5], r[6]
		elseif rule.kind == 'l' then
			rule.per, rule.cap, state = r[3], r[4], r[5]
		end
		row.rules[i], row.states[i] = rule, state
	end
	row.holds = holdsOf(t[5], #row.rules)
	return row
end

local function smallText(row)
	local r, s = row.rules[1], row.states[1]
	local w = s.w - EPOCH
	if w < 0 then w = 0 end
	if row.version == 0 and r.a == 1 and r.b < 4294967296 then
		return struct.pack('>I4I4I4', floor(w / 1048576), r.b, (w % 1048576) * 4096 + row.fp % 4096)
	end
	return struct.pack('>I7I7I7I7I2I4', w, s.f, r.a, r.b, row.fp % 65536, row.version)
end

local function textOf(row)
	if #row.rules == 1 and #row.holds == 0 and row.rules[1].kind == 'g' and row.rules[1].name == 'main' then
		return smallText(row)
	end
	local rules, holds = {}, {}
	for i, r in ipairs(row.rules) do
		local s, t = row.states[i], nil
		if r.kind == 'g' then
			t = {r.name, 'g', r.a, r.b, r.Mw, r.Mf, s.w, s.f}
		elseif r.kind == 'f' then
			t = {r.name, 'f', r.per, s.s, s.e, s.used}
		elseif r.kind == 'a' then
			t = {r.name, 'a', r.per, s.s, s.used}
		elseif r.kind == 's' then
			t = {r.name, 's', r.per, s.s, s.cur, s.prev}
		elseif r.kind == 'l' then
			t = {r.name, 'l', r.per, r.cap, s}
		else
			t = {r.name, 'c'}
		end
		rules[i] = t
	end
	for i, h in ipairs(row.holds) do
		local at, alike = h.at, true
		for k = 2, #at do alike = alike and at[k] == at[1] end
		holds[i] = {h.id, h.units, h.expiry, at[1] or 0}
		if not alike then holds[i][5] = at end
	end
	return '\255' .. cmsgpack.pack({row.version, row.fp, row.last, rules, holds})
end

-- under says whether a row's numbers have a fingerprint. Small rows know only its
-- last bits.
local function under(row, fp)
	if row.bits then return row.fp == fp % row.bits end
	return row.fp == fp
end

-- isUnder says whether a row's numbers are those of a set.
local function isUnder(row, set)
	if not under(row, set.fp) or #row.rules ~= #set.rules then return false end
	for i, r in ipairs(set.rules) do
		if row.rules[i].kind ~= r.kind then return false end
	end
	local was, is = row.rules[1], set.rules[1]
	return is.kind ~= 'g' or (is.a == was.a and is.b == was.b)
end

-- at carries out f with another now.
local function at(instant, f, ...)
	local present = now
	now = instant
	local a, b = f(...)
	now = present
	return a, b
end

-- advance makes holds that are over part of the states.
local function advance(row)
	local n, H = 0, row.holds
	while n < #H and H[n + 1].expiry <= now do n = n + 1 end
	row.last = max(row.last, now)
	if n == 0 then return end
	for i, r in ipairs(row.rules) do kinds[r.kind].fold(r, row.states[i], H) end
	local rest = {units = 0}
	for i = n + 1, #H do
		rest[i - n] = H[i]
		rest.units = rest.units + H[i].units
	end
	row.holds = rest
end

-- converted returns the row under other numbers, with the units in use kept, or nil
-- if they do not fit and may not be cut.
local function converted(row, set, cut)
	advance(row)
	local next = {version = row.version, fp = set.fp, last = row.last, rules = set.rules, states = {}, holds = {units = row.holds.units}}
	local from, booked = {}, {}
	for i, r in ipairs(set.rules) do
		for j, o in ipairs(row.rules) do
			if o.name == r.name then from[i] = j end
		end
		local kind, j = kinds[r.kind], from[i]
		if not j then
			next.states[i] = kind.fresh(r, now)
		else
			local old, state = row.rules[j], row.states[j]
			local ok, s = kind.adopt(r, old, state, row.holds, cut)
			if not ok then
				booked[i] = true
				s = kind.book(r, kinds[old.kind].used(old, state, row.holds), cut)
			end
			if not s then return nil end
			next.states[i] = s
		end
		if r.kind == 'g' and not cut then
			local w, f = span(r, row.holds.units)
			if after(w, f, r.Mw, r.Mf) then return nil end
		end
	end
	for k, h in ipairs(row.holds) do
		local charged = {}
		for i in ipairs(set.rules) do
			local j = from[i]
			if not j then
				charged[i] = FORFEITED
			elseif not booked[i] then
				charged[i] = h.at[j]
			elseif kinds[row.rules[j].kind].counts(row.rules[j], row.states[j], h.at[j]) then
				charged[i] = now
			else
				charged[i] = FORFEITED
			end
		end
		local expiry = h.expiry
		if not set.endless then expiry = min(expiry, now + set.longest) end
		next.holds[k] = {id = h.id, units = h.units, expiry = expiry, at = charged}
	end
	return next
end

-- inForce returns the row as every Set since its version has left it.
local function inForce(row, set)
	for _, p in ipairs(set.past) do
		if p[1] > row.version and under(row, p[3]) then
			row = at(max(p[2], row.last), converted, row, p[4], true)
		end
	end
	row.version = set.version
	return row
end

local function newRow(set)
	local row = {version = set.version, fp = set.fp, last = now, rules = set.rules, states = {}, holds = {units = 0}}
	for i, r in ipairs(set.rules) do row.states[i] = kinds[r.kind].fresh(r, call.epoch) end
	return row
end

-- Deciding.

local function report(row, i)
	local r, s = row.rules[i], row.states[i]
	return {1, i - 1, kinds[r.kind].remaining(r, s, row.holds), now, kinds[r.kind].resetAt(r, s, row.holds), 0}
end

-- judge returns nil if all rules admit a charge, else what the one to wait for
-- longest says.
local function judge(row, cost)
	local v, costly
	if cost == 0 then return nil end
	for i, r in ipairs(row.rules) do
		local kind, s = kinds[r.kind], row.states[i]
		if not kind.admits(r, s, row.holds, cost) then
			local t = kind.retryAt(r, s, row.holds, cost)
			if not v or t > v[4] or (t == NEVER and cost > r.cap and not costly) then
				v = report(row, i)
				costly = cost > r.cap
				v[1], v[4], v[6] = 0, t, costly and 1 or (#row.holds > 0 and HELD or 0)
			end
		end
	end
	return v
end

local function tightest(row)
	local best
	for i = 1, #row.rules do
		local v = report(row, i)
		if not best or v[3] < best[3] or (v[3] == best[3] and v[5] > best[5]) then best = v end
	end
	return best
end

local function charge(row, cost)
	if cost == 0 then return end
	for i, r in ipairs(row.rules) do kinds[r.kind].charge(r, row.states[i], row.holds, cost) end
end

local function addHold(row, id, units, expiry)
	local H, at = row.holds, {}
	for i = 1, #row.rules do at[i] = now end
	local i = #H
	while i > 0 and H[i].expiry > expiry do i = i - 1 end
	table.insert(H, i + 1, {id = id, units = units, expiry = expiry, at = at})
	H.units = H.units + units
end

local function findHold(row, id)
	for i, h in ipairs(row.holds) do
		if h.id == id then return i, h end
	end
	return nil
end

local function dropHold(row, i)
	row.holds.units = row.holds.units - row.holds[i].units
	table.remove(row.holds, i)
end

-- healed pulls back what is further ahead than any debt: the clock was set back. A refusal,
-- which changes nothing else, would otherwise meet it as far ahead the next time.
local function healed(row)
	local did = false
	for i, r in ipairs(row.rules) do
		local s = row.states[i]
		if r.kind == 'g' and after(s.w, s.f, now + r.Mw, r.Mf) then
			s.w, s.f, did = now + r.Mw, r.Mf, true
		end
	end
	return did
end

local ops = {}

function ops.each(row, c)
	local v = judge(row, c[3])
	if v then return v, healed(row) end
	charge(row, c[3])
	return tightest(row), c[3] > 0
end

ops.all = ops.each

function ops.peek(row, c)
	return judge(row, c[3]) or tightest(row), false
end

function ops.debit(row, c)
	charge(row, c[3])
	return tightest(row), c[3] > 0
end

function ops.hold(row, c)
	local v = judge(row, c[3])
	if v then return v, false end
	if #row.holds >= call.most then
		v = tightest(row)
		v[1], v[4], v[6] = 0, row.holds[1].expiry, 2 + HELD
		return v, false
	end
	charge(row, c[3])
	addHold(row, c[4], c[3], c[5])
	return tightest(row), true
end

function ops.settle(row, c)
	local j, h = findHold(row, c[4])
	if not j then return {0, 0, 0, 0, 0, 0}, false end
	local over, back, refunded, overrun = max(0, c[3] - h.units), max(0, h.units - c[3]), 0, 0
	for i, r in ipairs(row.rules) do
		local kind, s = kinds[r.kind], row.states[i]
		if r.kind ~= 'c' then overrun = over end
		refunded = max(refunded, kind.refund(r, s, row.holds, h.at[i], back))
		if over > 0 then kind.charge(r, s, row.holds, over) end
	end
	dropHold(row, j)
	return {1, 0, refunded, overrun, 0, 0}, true
end

function ops.renew(row, c)
	local j, h = findHold(row, c[4])
	if not j then return {0, 0, 0, 0, 0, 0}, false end
	local charged = h.at
	dropHold(row, j)
	addHold(row, h.id, h.units, max(c[5], now))
	local _, new = findHold(row, h.id)
	new.at = charged
	return {1, 0, 0, 0, 0, 0}, true
end

function ops.reset(row)
	for i, r in ipairs(row.rules) do kinds[r.kind].reset(r, row.states[i], row.holds, i) end
	return {1, 0, 0, 0, 0, 0}, true
end

function ops.refund(row, c)
	for i, r in ipairs(row.rules) do kinds[r.kind].undo(r, row.states[i], row.holds, c[5], c[3]) end
	return {1, 0, 0, 0, 0, 0}, true
end

-- learnCalendars tells a row of other numbers how the windows go on that it has: it knows
-- only where the last one ended, and takes the next for as long.
local function learnCalendars(row, set)
	for _, r in ipairs(row.rules) do
		for _, o in ipairs(set.rules) do
			if r.cal and o.cal and o.name == r.name then r.cal = o.cal end
		end
	end
end

-- These act on a row as it is: they convert nothing, and make no row.
local asItIs = {settle = true, renew = true, reset = true, refund = true}

-- lifetime returns for how many ms a row must be kept: until it equals a new one.
local function lifetime(row)
	local last = now
	for i, r in ipairs(row.rules) do
		local kind = kinds[r.kind]
		last = max(last, kind.resetAt(r, row.states[i], row.holds))
		if r.miss or r.mw then last = max(last, kind.resetAt(r, kind.fresh(r, call.epoch), {units = 0})) end
	end
	local H, r, s = row.holds, row.rules[1], row.states[1]
	if #H > 0 then last = max(last, H[#H].expiry) end
	if last >= NEVER then return MONTH + call.keep end
	if r.kind == 'g' then -- as take.lua and small.lua, which rely on it, and of what the row will say
		local quantum = max(4000000, 16 * r.b / r.a)
		last = max(last, (floor(max(s.w, EPOCH) / quantum) + 1) * quantum)
	end
	return math.ceil((last - now) / 1000) + call.keep
end

-- The call.

for _, set in ipairs(call.sets) do
	for _, r in ipairs(set.rules) do
		if r.cal and (now < r.cal[1] or now >= r.cal[3]) then return {3, now} end
	end
end

local expiry = NEVER
if call.ttl and call.ttl >= 0 then expiry = now + call.ttl end

local rows = {}
for k = 1, #KEYS do
	local text = redis.pcall('GET', KEYS[k])
	if type(text) == 'table' then
		if not string.find(text.err, 'WRONGTYPE', 1, true) then return text end
		text = ''
	end
	if text and string.byte(text) == 255 then
		rows[k] = bigRow(text)
	elseif text and (#text == 12 or #text == 34) then
		rows[k] = smallRow(text)
	end
	if text and not rows[k] then
		return redis.error_reply('ERR weir: the value at ' .. KEYS[k] .. ' is not a row of weir')
	end
end

for n, c in ipairs(call.charges) do
	local row, set = rows[c[1]], call.sets[c[2]]
	if row and row.version > set.version then
		if not call.lost then return {1, now} end
		row.version = set.version
	end
	if row and row.version < set.version then
		if row.version < set.since then return {2, now, n, row.version} end
		rows[c[1]] = inForce(row, set)
	end
end

-- ready returns the row of a charge under the charge's numbers, or nil if the units in use do
-- not fit them.
local function ready(c)
	local row, set = rows[c[1]], call.sets[c[2]]
	if not row then return newRow(set) end
	if not isUnder(row, set) then return converted(row, set, false) end
	row.rules, row.fp, row.bits = set.rules, set.fp, nil
	advance(row)
	return row
end

-- written returns what to write of a row.
local function written(row) return {textOf(row), string.format('%.0f', lifetime(row))} end

local debited = {}
for n, units in ipairs(call.used or {}) do
	if units > 0 then
		local c = call.charges[n]
		local row = ready(c)
		if not row then return {4, now, n} end
		charge(row, units)
		rows[c[1]], debited[c[1]] = row, true
	end
end
for k in pairs(debited) do debited[k] = written(rows[k]) end

local out, changed, refused = {0, now}, {}, false
for n, c in ipairs(call.charges) do
	local k, set = c[1], call.sets[c[2]]
	local row = rows[k]
	local v, did = nil, false
	if not c[5] then c[5] = expiry end
	if asItIs[call.op] then
		v = {0, 0, 0, 0, 0, 0}
		if row then
			if isUnder(row, set) then
				row.rules, row.fp, row.bits = set.rules, set.fp, nil
			else
				learnCalendars(row, set)
			end
			advance(row)
			v, did = ops[call.op](row, c)
		end
	else
		row = ready(c)
		if not row then return {4, now, n} end
		v, did = ops[call.op](row, c)
		if v[1] == 0 then refused = true end
		-- A step back of the clock is told as the time until then, as from now.
		v[4], v[5] = (v[4] == NEVER) and -1 or v[4] - now, (v[5] == NEVER) and -1 or v[5] - now
	end
	if did then rows[k], changed[k] = row, true end
	for i = 1, 6 do out[#out + 1] = v[i] end
end

if refused and (call.op == 'all' or call.op == 'hold') then changed = {} end
for k in pairs(changed) do debited[k] = written(rows[k]) end
for k, row in pairs(debited) do redis.call('SET', KEYS[k], row[1], 'PX', row[2]) end
return out
