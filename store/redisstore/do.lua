-- do.lua executes any operation on any rows, atomically.
--
-- It implements package algo's Ledger, at the resolution of a microsecond: rows are read
-- first, all charges are applied in memory, and only then is each row that
-- changed written, once. So a call that fails has changed nothing, although Redis
-- does not roll scripts back.
--
-- KEYS[i]  the rows; then, if the call has rows, for each of these the two keys of its
--          holds: the sorted set and the hash
-- ARGV[1]  the call, in JSON:
--   rows     how many rows there are, if the keys of holds follow
--   op       "each", "all", "hold", "holds", "peek", "debit", "settle", "renew", "reset" or "refund";
--            "hold" holds all of its charges or none, "holds" each by itself
--   now      µs since 1970, or absent: then it is the server's TIME
--   keep     ms that rows are kept after they equal unused ones
--   ttl      µs that holds live, or -1: until they are settled
--   epoch    µs: when the limiter was first started
--   most     how many holds a key may have
--   enough   the windows of later instants are not requested any more, but assumed to be the next one
--   lost     rows of later versions are used as they are: those versions were lost
--   sets     the limits of the charges, see compiled_limits.go, each with
--     past   the changes: {version, at, fingerprint of the old limits, the new set}
--     since  past begins after this version
--   charges  {index in KEYS, index in sets, cost, µs}
--   classes  absent, or the class of each charge
--   used     absent, or for each charge the units to debit before the decision,
--            whether they fit or not, and also if all charges are then refused
--
-- ARGV[1 + n]  the id of charge n's hold, 16 bytes, for "hold", "holds", "settle" and "renew"
--
-- It returns {status, now, …}: status 0 with the outcomes, six values for each
-- charge; 1 if a row has a later version than its set; 2, the index of a charge and
-- a version, if the past of its set must begin after that; 3 if a set's calendar is
-- not that of now, or, with some instants, if it does not have their windows; 4, and the
-- index of a charge, if the units in use do not fit its limits; 5 if the keys of holds are
-- needed. Indices count from 1.

local call = cjson.decode(ARGV[1])
local now = call.now
if not now then
	local t = redis.call('TIME')
	now = t[1] * 1000000 + t[2]
end

local EPOCH = 1577836800000000 -- 2020, the zero of the times in small rows
local HORIZON = 4733596800000000 -- a hundred years after EPOCH: what comes back later counts as never
local NEVER = 9007199254740991
local FORFEITED = -1
local SETTLED = 9007199254740992 -- 2^53: subtracted from the expiry in the scores of settled holds
local OUTCOMES = 1000 -- how many settled holds are remembered for a key
local GRACE = 250000 -- µs for which there is no borrowing after who has recalled units could come back
local RECALL = 60000000 -- µs for which there is no borrowing at most, unless units are recalled again
local UNENDING = 3600000000 -- µs for which the outcome of a hold without an expiry is remembered
local FAR = 2251799813685248 -- 2^51 µs: further ahead than any debt
local PARTS = 2251799813685247 -- the most of a rate's a and b, and of a period
local HELD = 4 -- in the sixth value of an outcome: holds are open
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

-- reachable returns an instant or, if that lies beyond HORIZON, NEVER.
local function reachable(instant)
	if instant > HORIZON then return NEVER end
	return instant
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

-- span returns how long units take to be replenished.
local function span(r, units)
	if units * r.b / r.a >= NEVER / 2 then return (NEVER - 1) / 2, 0 end
	return muldiv(units, r.b, r.a)
end

-- paid returns how many units are replenished in w + f/a µs, and the rest in fractions 1/b.
local function paid(r, w, f)
	if w * r.a / r.b >= NEVER / 2 then return (NEVER - 1) / 2, 0 end -- no debt is that large: the clock was set back
	local units, rest = muldiv(w, r.a, r.b)
	rest = rest + f
	if rest >= r.b then return units + floor(rest / r.b), rest % r.b end
	return units, rest
end

-- Rules. Each kind has the functions of algo's Rule, under the same names. r is
-- the rule, s its state, H the holds, none of which has expired.

-- A kind is made when it is first used: to make all of them would take longer than most calls.

local makers, defaults = {}, {}

function defaults.fold() end

function defaults.most(r) return r.cap end

local kinds = setmetatable({}, {__index = function(known, name)
	local kind = makers[name]()
	kind.fold, kind.most = kind.fold or defaults.fold, kind.most or defaults.most
	kind.undo = kind.undo or kind.refund
	kind.admits = kind.admits or function(r, s, H, cost) return kind.remaining(r, s, H) >= cost end
	known[name] = kind
	return kind
end})

-- Holds. A row with holds keeps their sum and number and when the first and the last
-- expire. That is all that most decisions need, however many holds there are: since expired
-- ones become part of the states in order of their expiry, the effective TAT is
-- max(TAT, now + units × T). The holds themselves are in two keys beside the row's:
--
--   a sorted set   by expiry; a member is the units (7 bytes) and the id
--   a hash         id → units, expiry, when it was charged, + 1 (7 bytes each), number (4)
--
-- A hold that was settled stays in both until its expiry, so that settling it again returns the
-- same outcome. Its score is negative, so that it sorts before all open ones, its member is the
-- id, and the hash has expiry, refunded, overrun (7 bytes each).
--
-- A hold of a class has the class's name after the id in the sorted set, and at the end in the hash.
--
-- H has, of a row: units, count, first, last, number (of the last hold), rebooked, and by, the units
-- held by each class; of the operation at hand: class, hold (the units are to be held), ending (the
-- units of the hold that is settled); of the
-- script: z and h, the keys, nil if they were not given; floor: stored holds that
-- expire by then are over; and what is to be written: over, ids of such holds; gone, id →
-- member of stored holds that have ended; new, holds in order of expiry; done, id → outcome.

local NEEDS_KEYS = {}
local pack, unpack, join = struct.pack, struct.unpack, unpack

local function noHolds()
	return {units = 0, count = 0, first = 0, last = 0, number = 0, by = {}, class = '', floor = -1, over = {}, gone = {}, new = {}, done = {}}
end

-- byClass adds to the units that a class holds.
local function byClass(H, class, units)
	if class ~= '' then H.by[class] = max(0, (H.by[class] or 0) + units) end
end

-- copyOf returns holds that can be changed without the others.
local function copyOf(H)
	local copy = {}
	for name, value in pairs(H) do
		if type(value) == 'table' and name ~= 'rebooked' then
			copy[name] = {}
			for k, v in pairs(value) do copy[name][k] = v end
		else
			copy[name] = value
		end
	end
	return copy
end

-- text returns a number as Redis takes it.
local function text(x) return string.format('%.0f', x) end

-- needsKeys ends the script, before it has changed anything, unless it was given the keys of H.
local function needsKeys(H)
	if not H.z then error(NEEDS_KEYS, 0) end
end

-- each calls f with the units, expiry, id and class of open holds in order of expiry, until it returns true.
local function each(H, f)
	local i, from, size = 1, 0, 8
	while H.count > #H.new do
		needsKeys(H)
		local page = redis.call('ZRANGEBYSCORE', H.z, '(' .. text(H.floor), '+inf', 'WITHSCORES', 'LIMIT', from, size)
		for j = 1, #page, 2 do
			local units, expiry, id, class = unpack('>I7', page[j]), tonumber(page[j + 1]), string.sub(page[j], 8, 23), string.sub(page[j], 24)
			if not H.gone[id] then
				while H.new[i] and H.new[i].expiry <= expiry do
					if f(H.new[i].units, H.new[i].expiry, H.new[i].id, H.new[i].class) then return end
					i = i + 1
				end
				if f(units, expiry, id, class) then return end
			end
		end
		if #page < 2 * size then break end
		from, size = from + size, min(4 * size, 2048)
	end
	for k = i, #H.new do
		if f(H.new[k].units, H.new[k].expiry, H.new[k].id, H.new[k].class) then return end
	end
end

-- holdOf returns the stored hold of a value in the hash, or nil.
local function holdOf(H, id, value)
	if not value or #value < 25 or H.gone[id] then return nil end
	local units, expiry, charged, number = unpack('>I7I7I7I4', value)
	if expiry <= max(H.floor, now) then return nil end
	return {id = id, units = units, expiry = expiry, charged = charged - 1, number = number, class = string.sub(value, 26)}
end

-- find returns an open hold, or nil and the outcome if it was settled.
local function find(H, id)
	for _, h in ipairs(H.new) do
		if h.id == id then return h end
	end
	if H.done[id] then return nil, H.done[id] end
	needsKeys(H)
	local value = redis.call('HGET', H.h, id)
	if value and #value == 21 then
		local expiry, refunded, overrun = unpack('>I7I7I7', value)
		if expiry > now then return nil, {refunded = refunded, overrun = overrun, expiry = expiry} end
	end
	return holdOf(H, id, value)
end

-- allHolds returns every open hold.
local function allHolds(H)
	local list = {}
	for i, h in ipairs(H.new) do list[i] = h end
	if H.count <= #list then return list end
	needsKeys(H)
	local all = redis.call('HGETALL', H.h)
	for i = 1, #all, 2 do list[#list + 1] = holdOf(H, all[i], all[i + 1]) end
	return list
end

-- findFirst looks up when the first hold expires.
local function findFirst(H)
	local found = false
	each(H, function(_, expiry)
		H.first, found = expiry, true
		return true
	end)
	if not found then H.count, H.units = 0, 0 end -- Redis has lost them, or they have expired there
	if H.count == 0 then H.units, H.number, H.rebooked, H.by = 0, 0, nil, {} end
end

-- findLast looks up when the last hold expires.
local function findLast(H)
	local last, from = 0, 0
	if #H.new > 0 then last = H.new[#H.new].expiry end
	while H.count > #H.new do
		needsKeys(H)
		local page = redis.call('ZREVRANGEBYSCORE', H.z, '+inf', '(' .. text(H.floor), 'WITHSCORES', 'LIMIT', from, 8)
		for j = 1, #page, 2 do
			if not H.gone[string.sub(page[j], 8, 23)] then
				H.last = max(last, tonumber(page[j + 1]))
				return
			end
		end
		if #page < 16 then break end
		from = from + 8
	end
	H.last = last
end

local function addHold(H, h)
	local i = #H.new
	while i > 0 and H.new[i].expiry > h.expiry do i = i - 1 end
	table.insert(H.new, i + 1, h)
	if H.count == 0 then H.first, H.last = h.expiry, h.expiry end
	H.units, H.count = H.units + h.units, H.count + 1
	byClass(H, h.class, h.units)
	H.first, H.last = min(H.first, h.expiry), max(H.last, h.expiry)
end

local function dropHold(H, h)
	local new = false
	for i, other in ipairs(H.new) do
		if other == h then new = table.remove(H.new, i) end
	end
	if not new then H.gone[h.id] = pack('>I7', h.units) .. h.id .. h.class end
	H.units, H.count = max(0, H.units - h.units), max(0, H.count - 1)
	byClass(H, h.class, -h.units)
	if H.count == 0 or h.expiry <= H.first then findFirst(H) end
	if H.count > 0 and h.expiry >= H.last then findLast(H) end
end

-- moveHold gives a hold another expiry.
local function moveHold(H, h, expiry)
	local number, rebooked = H.number, H.rebooked
	dropHold(H, h)
	H.number, H.rebooked = number, rebooked -- also if it was the only one
	addHold(H, {id = h.id, units = h.units, expiry = expiry, charged = h.charged, number = h.number, class = h.class})
end

-- endHoldsBy moves the expiry of all holds to an instant at the latest.
local function endHoldsBy(H, instant)
	if H.count == 0 or H.last <= instant then return end
	local later = {}
	each(H, function(_, expiry, id)
		if expiry > instant then later[#later + 1] = id end
	end)
	for _, id in ipairs(later) do
		local h = find(H, id)
		if h then moveHold(H, h, instant) end
	end
end

-- chargedAt returns when a hold was charged to rule i. After other rules were put in force and
-- the units in use were booked anew, rebooked[i] says so for all holds up to a number:
-- {the number, the number up to which they are forfeited, the instant before which they were
-- charged if they are forfeited, too, and when the others count as charged}.
local function chargedAt(H, h, i)
	local r = H.rebooked and H.rebooked[i]
	if not r or h.number > r[1] then return h.charged end
	if h.number <= r[2] or h.charged < r[3] then return FORFEITED end
	return r[4]
end

-- rebookedAgain returns what becomes of r for all holds so far when those charged since an
-- instant are booked anew.
local function rebookedAgain(H, r, since)
	if since == NEVER then return {H.number, H.number, 0, now} end
	if since == 0 or not r then return {H.number, 0, since, now} end
	if r[4] >= since then return {H.number, r[2], r[3], now} end
	return {H.number, r[1], since, now}
end

function makers.g()
	local gcra = {}

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
		if H.units == 0 then return w, f end
		return later(w, f, raised(r, now, 0, H.units, cw, cf))
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

	-- fold makes a hold that was over at an instant part of the state; H has it and all that were
	-- over no sooner.
	function gcra.fold(r, s, H, instant)
		s.w, s.f = later(s.w, s.f, raised(r, instant, 0, H.units, now + r.Mw, r.Mf))
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

	-- upFrom returns the first whole µs from w + f/a on, or now if that is past.
	local function upFrom(w, f)
		if not after(w, f, now, 0) then return now end
		if f > 0 then return w + 1 end
		return w
	end

	-- retryAt returns the first instant at which TAT leaves room, assuming that holds run to their
	-- expiry. Their sum falls from hold to hold, so they are looked at only until it leaves room.
	function gcra.retryAt(r, s, H, cost)
		if cost > r.cap then return NEVER end
		local cw, cf = span(r, cost)
		local roomW, roomF = minus(r.a, r.Bw, r.Bf, cw, cf)
		local w, f = later(s.w, s.f, now, 0)
		if after(w, f, now + r.Mw, r.Mf) then w, f = now + r.Mw, r.Mf end
		local sum, never = H.units, false
		each(H, function(units, expiry)
			local hw, hf = span(r, sum)
			if not after(hw, hf, roomW, roomF) then return true end
			never = expiry == NEVER
			if never then return true end
			if after(hw, hf, r.Mw, r.Mf) then hw, hf = r.Mw, r.Mf end
			w, f = later(w, f, expiry + hw, hf)
			sum = sum - units
		end)
		if never then return NEVER end
		return upFrom(minus(r.a, w, f, roomW, roomF))
	end

	-- resetAt is an upper bound while holds are open: all may be held until the last expires.
	function gcra.resetAt(r, s, H)
		local w, f = effective(r, s, H)
		if H.units > 0 then
			if H.last == NEVER then return NEVER end
			w, f = later(w, f, raised(r, H.last, 0, H.units, H.last + r.Mw, r.Mf))
		end
		return upFrom(w, f)
	end

	function gcra.used(r, s, H)
		local w, f = effective(r, s, H)
		local units, rest = paid(r, minus(r.a, w, f, now, 0))
		if rest > 0 then return units + 1 end
		return units
	end

	function gcra.since() return 0 end

	-- owes writes a debt of units and rest/of a unit to a state, or returns that it does
	-- not fit. A debt that can no longer be refused is cut to the maximum.
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
	return gcra
end

-- Fixed windows, of equal length or of a calendar.

-- A calendar is the begin and the end of a window and the end of the next one, for the window of now and then for
-- those of later instants that the script has requested.

-- placeIn returns the place in a calendar of what it has about an instant, or nil.
local function placeIn(cal, at)
	if at < cal[3] then return 1 end
	for k = 4, #cal, 3 do
		if cal[k] <= at and at < cal[k + 2] then return k end
	end
end

function makers.f()
	local fixed = {}

	local function windowOf(r, at)
		if r.cal then
			local k = placeIn(r.cal, at) or 1
			if at < r.cal[k + 1] then return r.cal[k], r.cal[k + 1] end
			return r.cal[k + 1], r.cal[k + 2]
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

	-- paces says whether the class of the operation at hand is paced.
	local function paces(r, H)
		for _, class in ipairs(r.paced or {}) do
			if class == H.class then return true end
		end
		return false
	end

	function fixed.remaining(r, s, H)
		local b, e, used = fixedNow(r, s)
		if not paces(r, H) then return max(0, r.cap - used) end
		local passed = muldiv(r.cap, min(max(0, now - b), e - b), e - b)
		return max(0, passed - used)
	end

	function fixed.charge(r, s, H, cost)
		s.s, s.e, s.used = fixedNow(r, s)
		s.used = min(s.used + cost, NEVER)
	end

	-- since returns from when on charges are still, and wholly, part of used; NEVER if none is.
	function fixed.since(r, s)
		local b = fixedNow(r, s)
		return b
	end

	function fixed.refund(r, s, H, at, units)
		if at < fixed.since(r, s) then return 0 end
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
		local since = fixed.since(r, s)
		for _, h in ipairs(allHolds(H)) do
			if chargedAt(H, h, i) >= since then held = held + h.units end
		end
		s.used = held
	end

	-- fitsIn returns when a window has passed so far that it is worth some units, if that is before its end.
	local function fitsIn(r, b, e, units)
		if units >= r.cap then return nil end
		local wait, rest = muldiv(units, e - b, r.cap)
		if rest > 0 then wait = wait + 1 end
		return wait < e - b and b + wait or nil
	end

	function fixed.retryAt(r, s, H, cost)
		if cost > r.cap then return NEVER end
		local b, e, used = fixedNow(r, s)
		if not paces(r, H) then
			if used + cost <= r.cap then return now end
			return e
		end
		local at = fitsIn(r, b, e, used + cost)
		if not at and used > 0 then -- in the next window
			at = fitsIn(r, e, (e == r.cal[2]) and r.cal[3] or 2 * e - b, cost)
		end
		return at and max(now, at) or NEVER
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
	return fixed
end

-- Windows that open with the first charge.

function makers.a()
	local anchored = {}

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

	function anchored.since(r, s)
		local b, used = anchoredNow(r, s)
		if used == 0 then return NEVER end
		return b
	end

	function anchored.refund(r, s, H, at, units)
		if at < anchored.since(r, s) then return 0 end
		s.s, s.used = anchoredNow(r, s)
		local back = min(units, s.used)
		s.used = s.used - back
		if s.used == 0 then s.s = 0 end
		return back
	end

	function anchored.reset(r, s, H, i)
		local held = 0
		local since = anchored.since(r, s)
		for _, h in ipairs(allHolds(H)) do
			if chargedAt(H, h, i) >= since then held = held + h.units end
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
	return anchored
end

-- The estimated sliding window.

function makers.s()
	local sliding = {}

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

	function sliding.since(r, s)
		local b = slidingNow(r, s)
		return b -- the window before counts in part only
	end

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
		for _, h in ipairs(allHolds(H)) do
			local which = into(r, s, chargedAt(H, h, i))
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
	return sliding
end

-- The log: pairs of an instant and the units taken then, one after the other.

function makers.l()
	local log = {}

	-- live drops the entries that have left the window, and returns the sum of the others.
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

	-- stepOf returns the instant at which a charge counts as made: a log of a greater rate than 4,096
	-- counts in steps of 1/256 of the period.
	local function stepOf(r, at)
		if r.cap <= 4096 then return at end
		local step = math.ceil(r.per / 256)
		return math.ceil(at / step) * step
	end

	local function append(r, s, at, units)
		local n = #s
		at = stepOf(r, at)
		if n > 0 and (at <= s[n - 1] or n / 2 >= r.cap) then
			s[n - 1] = max(s[n - 1], at)
			s[n] = min(s[n] + units, NEVER)
			return
		end
		s[n + 1], s[n + 2] = at, units
	end

	function log.fresh(r, epoch)
		if r.miss then return {stepOf(r, epoch), r.miss} end
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
		if at == FORFEITED then return nil end
		at = stepOf(r, at)
		if at + r.per <= now then return nil end
		for i = 1, #s, 2 do
			if s[i] >= at then return i end
		end
		return nil
	end

	function log.since(r, s)
		live(r, s)
		if #s == 0 then return NEVER end
		if r.cap <= 4096 then return now - r.per + 1 end
		local step = math.ceil(r.per / 256)
		return floor((now - r.per) / step) * step + 1
	end

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
		for _, h in ipairs(allHolds(H)) do
			local k = entry(r, s, chargedAt(H, h, i))
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
		return {stepOf(r, now), used}
	end

	function log.adopt(r, old, s)
		if old.kind ~= 'l' or old.per ~= r.per or (old.cap > 4096) ~= (r.cap > 4096) then return false end
		local copy = {}
		for i = 1, #s do copy[i] = s[i] end
		return true, copy
	end
	return log
end

-- Slots: the holds are the state.

function makers.c()
	local slots = {}

	function slots.fresh() return {} end

	function slots.remaining(r, s, H) return max(0, r.cap - H.units) end

	function slots.retryAt(r, s, H, cost)
		if cost > r.cap then return NEVER end
		local at, held = now, H.units
		each(H, function(units, expiry)
			if held + cost <= r.cap then return true end
			held = held - units
			at = max(at, expiry)
		end)
		return at
	end

	function slots.resetAt(r, s, H)
		if H.count == 0 then return now end
		return max(now, H.last)
	end

	function slots.charge() end
	function slots.refund() return 0 end
	function slots.reset() end
	function slots.used() return 0 end
	function slots.since() return NEVER end
	function slots.book() return {} end
	function slots.adopt() return true, {} end
	return slots
end

-- Lending: levels of the whole and of classes, in parts of a unit such that rates are whole numbers of
-- parts per µs. See algo's Lending for the formulas.

-- furthest returns the latest instant that levels can be of: one further ahead was not written by this clock.
local function furthest(r) return now + floor((r.cap + r.debt) * r.parts / r.rate) + 1 end

function makers.p()
	local lending = {}

	-- place returns the place of a class, or that of charges without one, and whether it is a class of r.
	local function place(r, class)
		for i, c in ipairs(r.classes) do
			if c[1] == class then return i, true end
		end
		return r.first, false
	end

	local function capacity(r, i)
		local c = r.classes[i]
		if c[4] == 1 then return c[3] end
		local spare = r.cap
		for _, o in ipairs(r.classes) do spare = spare - o[3] end
		return c[3] + spare
	end

	-- most returns the most that ever fits at once for the operation at hand.
	function lending.most(r, H) return capacity(r, (place(r, H.class))) end

	local function parts(r, units) return min(units * r.parts, NEVER) end

	-- ceiling returns how much there can be of the whole beside what is held.
	local function ceiling(v) return max(parts(v.r, v.r.cap) - parts(v.r, v.held), -v.r.debt * v.r.parts) end

	-- byRate returns the places of the classes in the order of their rates; the last one of several comes first.
	local function byRate(r)
		local order = {}
		for i in ipairs(r.classes) do order[i] = i end
		table.sort(order, function(i, j)
			local x, y = r.classes[i][2], r.classes[j][2]
			return x < y or (x == y and i > j)
		end)
		return order
	end

	-- setMost sets how much there can be of each class beside what is held, all together no more than of the whole.
	-- If a Set has left less for what is held, classes go without what is missing in the order of their rates.
	local function setMost(v)
		local missing = -ceiling(v)
		for i, c in ipairs(v.r.classes) do
			v.most[i] = max(0, parts(v.r, c[3]) - parts(v.r, v.by[i]))
			missing = missing + v.most[i]
		end
		if missing <= 0 then return end
		for _, i in ipairs(byRate(v.r)) do
			local less = min(missing, v.most[i])
			v.most[i], missing = v.most[i] - less, missing - less
		end
	end

	local function refilled(level, most, rate, dt)
		if level >= most or rate == 0 then return min(level, most) end
		if dt > floor((most - level) / rate) then return most end
		return level + dt * rate
	end

	-- refill moves levels to a later instant; they never exceed their ceilings.
	local function refill(v, instant)
		local dt = max(0, instant - v.at)
		v.p = refilled(v.p, ceiling(v), v.r.rate, dt)
		for i, c in ipairs(v.r.classes) do v.of[i] = refilled(v.of[i], v.most[i], c[2], dt) end
		v.at = max(v.at, instant)
	end

	-- free takes units that a class no longer holds out of what is held.
	local function free(v, class, units)
		local i = place(v.r, class)
		v.held, v.by[i] = v.held - units, v.by[i] - units
		setMost(v)
	end

	-- heldBy returns the units that each class holds. Those of a class that there is not, or not any more, are
	-- held by that of charges that name none, as they are charged to it.
	local function heldBy(r, H)
		local by, unnamed = {}, H.units
		for i in ipairs(r.classes) do by[i] = 0 end
		for class, units in pairs(H.by) do
			local i = place(r, class)
			by[i], unnamed = by[i] + units, unnamed - units
		end
		by[r.first] = by[r.first] + unnamed
		return by
	end

	-- levels returns the levels at now, with what is held. It leaves the state as it is.
	local function levels(r, s, H)
		local v = {r = r, at = min(s.at, furthest(r)), p = s.p, of = {}, held = H.units, by = heldBy(r, H), most = {}, lendAt = min(s.lendAt, now + RECALL)}
		for i in ipairs(r.classes) do v.of[i] = s.of[i] end
		setMost(v)
		refill(v, v.at)
		refill(v, now)
		return v
	end

	local function keepLevels(s, v) s.at, s.p, s.of, s.lendAt = v.at, v.p, v.of, v.lendAt end

	-- surplus returns what is nobody's after the classes have paid what they owe.
	local function surplus(v)
		local sum = v.p
		for _, level in ipairs(v.of) do sum = sum - max(0, level) end
		return sum
	end

	-- balance returns the whole less all levels.
	local function balance(v)
		local sum = v.p
		for _, level in ipairs(v.of) do sum = sum - level end
		return sum
	end

	local function isBorrower(v, i) return v.r.classes[i][4] ~= 1 end

	-- borrows says whether class i may take of the surplus now.
	local function borrows(v, i) return isBorrower(v, i) and v.at >= v.lendAt end

	local function available(v, i)
		if borrows(v, i) then
			local rest = surplus(v)
			if rest >= 0 or v.of[i] < 0 then return max(0, v.of[i]) + rest end
		end
		return v.of[i] + min(0, balance(v))
	end

	-- mayHold says whether class i may hold units more: what classes hold beyond their bursts must fit
	-- into what is no class's, unless there can be as much of its own.
	local function mayHold(v, i, cost)
		if parts(v.r, cost) <= v.most[i] then return true end
		local beyond, spare = 0, v.r.cap
		for j, c in ipairs(v.r.classes) do
			local h = v.by[j]
			spare = spare - c[3]
			if j == i then h = h + cost end
			beyond = beyond + max(0, h - c[3])
		end
		return beyond <= spare
	end

	local function takeParts(v, i, n)
		local own, lent = min(n, max(0, v.of[i])), 0
		if isBorrower(v, i) then lent = min(n - own, max(0, surplus(v))) end
		if lent > 0 then -- all debts are paid first
			for j, level in ipairs(v.of) do
				if isBorrower(v, j) then v.of[j] = max(0, level) end
			end
		end
		local least = -v.r.debt * v.r.parts
		if v.r.classes[i][2] > 0 then -- what the class cannot owe is forgiven to the whole as well
			local before = v.of[i]
			v.of[i] = max(before - (n - lent), least)
			n = lent + before - v.of[i]
		end
		v.p = max(v.p - n, least)
	end

	local function fullLevels(r, at)
		local s = {at = at, p = parts(r, r.cap), of = {}, lendAt = 0}
		for i, c in ipairs(r.classes) do s.of[i] = parts(r, c[3]) end
		return s
	end

	function lending.fresh(r, epoch)
		if not r.init then return fullLevels(r, 0) end
		local s = {at = epoch, p = r.init[1], of = {}, lendAt = 0}
		for i in ipairs(r.classes) do s.of[i] = r.init[1 + i] end
		return s
	end

	function lending.admits(r, s, H, cost)
		local i = place(r, H.class)
		if cost > capacity(r, i) then return false end
		local v = levels(r, s, H)
		return parts(r, cost) <= available(v, i) and (not H.hold or mayHold(v, i, cost))
	end

	function lending.charge(r, s, H, cost)
		local v = levels(r, s, H)
		takeParts(v, (place(r, H.class)), parts(r, cost))
		keepLevels(s, v)
	end

	function lending.fold(r, s, H, instant)
		local present = now
		now = instant
		local v = levels(r, s, H)
		now = present
		keepLevels(s, v)
	end

	-- giveBack returns parts to the whole and to a class, whose holds are given in v.
	local function giveBack(s, v, class, n)
		local i = place(v.r, class)
		v.p = min(v.p + n, ceiling(v))
		v.of[i] = min(v.of[i] + n, v.most[i])
		keepLevels(s, v)
	end

	function lending.refund(r, s, H, at, units)
		local v = levels(r, s, H)
		free(v, H.class, H.ending)
		giveBack(s, v, H.class, parts(r, units))
		return units
	end

	function lending.undo(r, s, H, at, units)
		local n = parts(r, units)
		if now - at > n / r.rate then return 0 end
		giveBack(s, levels(r, s, H), H.class, n - (now - at) * r.rate)
		return units
	end

	function lending.reset(r, s, H) keepLevels(s, levels(r, fullLevels(r, now), H)) end

	function lending.remaining(r, s, H)
		local i = place(r, H.class)
		return min(floor(max(0, available(levels(r, s, H), i)) / r.parts), capacity(r, i))
	end

	-- refilling returns the rate at which a level rises, and for how long, at most steady.
	local function refilling(level, most, rate, steady)
		if level >= most or rate == 0 then return 0, steady end
		return rate, min(steady, floor((most - level) / rate))
	end

	-- lasts returns whether a level that changes at a rate is about to be 0 or more, and for how long that
	-- does not change, at most steady.
	local function lasts(level, rate, steady)
		if (level > 0 and rate < 0) or (level < 0 and rate > 0) then steady = min(steady, floor(level / -rate)) end
		return level > 0 or (level == 0 and rate >= 0), steady
	end

	-- slope returns how fast what is available to class i changes, and for how many µs it certainly does.
	local function slope(v, i)
		local all, steady = refilling(v.p, ceiling(v), v.r.rate, NEVER)
		local rest, sum, own, is = all, all, 0
		for j, c in ipairs(v.r.classes) do
			local rate
			rate, steady = refilling(v.of[j], v.most[j], c[2], steady)
			sum = sum - rate
			if v.of[j] >= 0 then
				rest = rest - rate
			elseif rate > 0 then
				steady = min(steady, floor(-v.of[j] / rate))
			end
			if j == i then own = rate end
		end
		if borrows(v, i) then
			if v.of[i] < 0 then return rest, steady end
			is, steady = lasts(surplus(v), rest, steady)
			if is then return rest + own, steady end
		elseif isBorrower(v, i) then
			steady = min(steady, v.lendAt - v.at)
		end
		is, steady = lasts(balance(v), sum, steady)
		if is then return own, steady end
		return own + sum, steady
	end

	-- rises returns when cost fits class i before an instant, if nothing changes but the levels, else nil.
	-- It moves v.
	local function rises(v, i, cost, hold, before)
		if hold and not mayHold(v, i, cost) then return nil end
		local need = parts(v.r, cost)
		while true do
			local missing = need - available(v, i)
			if missing <= 0 then return v.at < before and v.at or nil end
			local rise, steady = slope(v, i)
			if rise > 0 and steady > 0 then
				local dt = math.ceil(missing / rise)
				if dt <= steady then return v.at + dt < before and v.at + dt or nil end
			end
			local at = v.at + max(1, steady)
			if steady == NEVER or at >= before then return nil end
			refill(v, at)
		end
	end

	function lending.retryAt(r, s, H, cost)
		local i = place(r, H.class)
		if cost > capacity(r, i) then return NEVER end
		local v, found = levels(r, s, H), nil
		each(H, function(units, expiry, _, class)
			local at = v.at
			local try = {r = r, at = at, p = v.p, of = {}, held = v.held, by = v.by, most = v.most, lendAt = v.lendAt}
			for j, level in ipairs(v.of) do try.of[j] = level end
			found = rises(try, i, cost, H.hold, expiry)
			if found or expiry == NEVER then return true end
			refill(v, expiry)
			free(v, class, units)
		end)
		return max(now, reachable(found or rises(v, i, cost, H.hold, NEVER) or NEVER))
	end

	function lending.resetAt(r, s, H)
		local v = levels(r, s, H)
		if v.held > 0 then
			if H.last == NEVER then return NEVER end
			refill(v, H.last)
		end
		local longest = math.ceil(max(0, parts(r, r.cap) - v.p) / r.rate)
		for i, c in ipairs(r.classes) do
			if c[2] > 0 then longest = max(longest, math.ceil(max(0, parts(r, c[3]) - v.of[i]) / c[2])) end
		end
		if longest == 0 and v.at <= now then return max(now, v.lendAt) end
		return max(now, v.lendAt, v.at + longest)
	end

	-- recall lets nobody borrow until shortly after an instant if the class's own level covers cost. It returns
	-- whether something has changed.
	function lending.recall(r, s, H, cost, instant)
		local v, i = levels(r, s, H), place(r, H.class)
		instant = min(instant, now + RECALL - GRACE) + GRACE
		if parts(r, cost) > v.of[i] or instant <= v.lendAt then return false end
		v.lendAt = instant
		keepLevels(s, v)
		return true
	end

	function lending.used(r, s, H) return math.ceil((parts(r, r.cap) - levels(r, s, H).p) / r.parts) end

	function lending.since() return 0 end

	function lending.book(r, used, cut)
		if used > r.cap + r.debt then
			if not cut then return nil end
			used = r.cap + r.debt
		end
		local s = {at = now, p = (r.cap - used) * r.parts, of = {}, lendAt = 0}
		for i, c in ipairs(r.classes) do
			s.of[i] = used < r.cap and muldiv(c[3], r.cap - used, r.cap) * r.parts or 0
		end
		return s
	end

	-- scaled returns parts of another rule in parts of r, and the remainder.
	local function scaled(r, old, n)
		if n / old.parts * r.parts >= NEVER then return NEVER, 0 end -- more than any level
		return muldiv(n, r.parts, old.parts)
	end

	-- less returns a full level less what is missing in parts of another rule, or nil.
	local function less(r, full, missing, old, cut)
		local n, rest = scaled(r, old, max(0, missing))
		if rest > 0 then n = n + 1 end
		if n > full + r.debt * r.parts then
			if not cut then return nil end
			n = full + r.debt * r.parts
		end
		return full - n
	end

	-- continued returns the level of a class that had a level under old, or nil: what is missing stays
	-- missing as far as it fits, and what is owed stays owed.
	local function continued(r, c, old, was, level, cut)
		if c[2] == 0 then return 0 end
		if level < 0 then return less(r, 0, -level, old, cut) end
		return max(0, less(r, parts(r, c[3]), parts(old, was[3]) - level, old, true))
	end

	local function sameLending(r, old)
		if r.parts ~= old.parts or r.rate ~= old.rate or r.cap ~= old.cap or r.debt ~= old.debt or #r.classes ~= #old.classes then return false end
		for i, c in ipairs(r.classes) do
			for k = 1, 4 do
				if c[k] ~= old.classes[i][k] then return false end
			end
		end
		return true
	end

	function lending.adopt(r, old, s, H, cut)
		if old.kind ~= 'p' then return false end
		if sameLending(r, old) then
			local copy = {at = s.at, p = s.p, of = {}, lendAt = s.lendAt}
			for i, level in ipairs(s.of) do copy.of[i] = level end
			return true, copy
		end
		local was = levels(old, s, H)
		local v = {r = r, at = was.at, of = {}}
		v.p = less(r, parts(r, r.cap), parts(old, old.cap) - was.p, old, cut)
		if not v.p then return true, nil end
		local most = {}
		for i, c in ipairs(r.classes) do
			local j, own = place(old, c[1])
			most[i], v.of[i] = 0, 0
			if own then
				most[i] = continued(r, c, old, old.classes[j], was.of[j], cut)
				if not most[i] then return true, nil end
				v.of[i] = min(most[i], (scaled(r, old, max(0, was.of[j]))))
			end
		end
		for i in ipairs(r.classes) do v.of[i] = min(most[i], v.of[i] + max(0, surplus(v))) end
		for i, c in ipairs(r.classes) do
			local _, own = place(old, c[1])
			if not own then v.of[i] = min(parts(r, c[3]), max(0, surplus(v))) end
		end
		return true, {at = v.at, p = v.p, of = v.of, lendAt = 0}
	end
	return lending
end

-- Rows. A row has a version, the fingerprint of its limits, the last now, rules
-- with the parameters of their states, states and holds.
--
-- The row of one GCRA called main without holds is a small row: 12 bytes if a
-- unit takes a whole number of µs, below 2^32, and the limits were never changed, else 34.
-- take.lua reads and writes only these. All others begin with a byte 255, which
-- no small row does, and are MessagePack: a list of version, fingerprint, last now, rules with
-- their states, an empty list, and if there are holds what is kept of them. Earlier versions
-- wrote the holds themselves in place of the empty list; such rows are read, too.
--
-- Any other value is an error about that key. Everything that arithmetic relies on is checked, so
-- that a value of another program cannot be mistaken for a row and make the script fail.

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
	p = function(r)
		if #r ~= 12 or not whole(r[3], 1, PARTS) or not whole(r[4], 1, NEVER) or not areCounts(r, 5, 6) or not whole(r[7], 0, NEVER) then return false end
		if type(r[9]) ~= 'table' or type(r[10]) ~= 'table' or #r[9] ~= #r[10] or #r[10] == 0 or not whole(r[11], 1, #r[10]) then return false end
		if not whole(r[8], -NEVER, NEVER) or not whole(r[12], 0, NEVER) then return false end
		for i, c in ipairs(r[10]) do
			if not whole(r[9][i], -NEVER, NEVER) or type(c) ~= 'table' or #c ~= 4 or type(c[1]) ~= 'string' or not areCounts(c, 2, 4) then return false end
		end
		return true
	end,
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

-- isSummary checks what a row keeps of its holds.
local function isSummary(t, rules)
	if type(t) ~= 'table' or #t < 6 or #t > 7 or not areCounts(t, 1, 5) or t[2] == 0 then return false end
	if t[7] and (type(t[7]) ~= 'table' or #t[7] % 2 ~= 0) then return false end
	for i = 1, #(t[7] or {}), 2 do
		if type(t[7][i]) ~= 'string' or not whole(t[7][i + 1], 0, NEVER) then return false end
	end
	if t[6] == 0 then return true end
	if type(t[6]) ~= 'table' or #t[6] ~= rules then return false end
	for _, r in ipairs(t[6]) do
		if r ~= 0 and (type(r) ~= 'table' or #r ~= 4 or not areCounts(r, 1, 4)) then return false end
	end
	return true
end

-- holdsOf returns the holds of a row that keeps this of them.
local function holdsOf(t)
	local H = noHolds()
	if not t then return H end
	H.units, H.count, H.first, H.last, H.number = t[1], t[2], t[3], t[4], t[5]
	for i = 1, #(t[7] or {}), 2 do H.by[t[7][i]] = t[7][i + 1] end
	if t[6] == 0 then return H end
	H.rebooked = {}
	for i, r in ipairs(t[6]) do H.rebooked[i] = r ~= 0 and r end
	return H
end

-- oldHolds adds holds that are in the row itself. What they were charged to several rules at
-- different times is forfeited.
local function oldHolds(H, list)
	for i, h in ipairs(list) do
		local id = string.gsub(h[1], '%x%x', function(hex) return string.char(tonumber(hex, 16)) end)
		H.number = i
		addHold(H, {id = id, units = h[2], expiry = h[3], charged = h[5] and FORFEITED or h[4], number = i, class = ''})
	end
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
	return {version = version, fp = fp, bits = bits, last = 0, rules = {rule}, states = {{w = w + EPOCH, f = f}}, holds = noHolds()}
end

-- bigRow returns nil if it is none.
local function bigRow(text)
	local ok, t, more = pcall(cmsgpack.unpack, string.sub(text, 2))
	if not ok or more ~= nil or type(t) ~= 'table' or #t < 5 or #t > 6 then return nil end
	if not areCounts(t, 1, 3) or not areRules(t[4]) or not areHolds(t[5], #t[4]) then return nil end
	if t[6] ~= nil and not isSummary(t[6], #t[4]) then return nil end
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
		elseif rule.kind == 'p' then
			rule.parts, rule.rate, rule.cap, rule.debt, rule.classes, rule.first = r[3], r[4], r[5], r[6], r[10], r[11]
			state.at, state.p, state.of, state.lendAt = r[7], r[8], r[9], r[12]
		end
		row.rules[i], row.states[i] = rule, state
	end
	row.holds = holdsOf(t[6])
	if not t[6] then oldHolds(row.holds, t[5]) end
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
	local H = row.holds
	if #row.rules == 1 and H.count == 0 and row.rules[1].kind == 'g' and row.rules[1].name == 'main' then
		return smallText(row)
	end
	local rules = {}
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
		elseif r.kind == 'p' then
			t = {r.name, 'p', r.parts, r.rate, r.cap, r.debt, s.at, s.p, s.of, r.classes, r.first, s.lendAt}
		else
			t = {r.name, 'c'}
		end
		rules[i] = t
	end
	local list = {row.version, row.fp, row.last, rules, {}}
	if H.count > 0 then
		list[6] = {H.units, H.count, H.first, H.last, H.number, 0}
		if H.rebooked then
			list[6][6] = {}
			for i = 1, #rules do list[6][6][i] = H.rebooked[i] or 0 end
		end
		if next(H.by) then
			list[6][7] = {}
			for class, units in pairs(H.by) do
				local held = list[6][7]
				held[#held + 1], held[#held + 2] = class, units
			end
		end
	end
	return '\255' .. cmsgpack.pack(list)
end

-- under says whether a row's limits have a fingerprint. Small rows have only its
-- last bits.
local function under(row, fp)
	if row.bits then return row.fp == fp % row.bits end
	return row.fp == fp
end

-- isUnder says whether a row's limits are those of a set.
local function isUnder(row, set)
	if not under(row, set.fp) or #row.rules ~= #set.rules then return false end
	for i, r in ipairs(set.rules) do
		if row.rules[i].kind ~= r.kind then return false end
	end
	local was, is = row.rules[1], set.rules[1]
	return is.kind ~= 'g' or (is.a == was.a and is.b == was.b)
end

-- at calls f with another now.
local function at(instant, f, ...)
	local present = now
	now = instant
	local a, b = f(...)
	now = present
	return a, b
end

-- advance adds expired holds to the states, in order of their expiry.
local function advance(row)
	local H = row.holds
	row.last = max(row.last, now)
	if H.count == 0 or H.first > now then return end
	local over = {}
	each(H, function(units, expiry, id, class)
		if expiry > now then return true end
		over[#over + 1] = {units, expiry, id, class}
	end)
	for _, h in ipairs(over) do
		for i, r in ipairs(row.rules) do kinds[r.kind].fold(r, row.states[i], H, h[2]) end
		H.units, H.count = max(0, H.units - h[1]), max(0, H.count - 1)
		byClass(H, h[4], -h[1])
		H.over[#H.over + 1] = h[3]
	end
	while H.new[1] and H.new[1].expiry <= now do table.remove(H.new, 1) end
	H.floor, H.folded = max(H.floor, now), true
	findFirst(H)
end

-- converted returns the row under other limits, with the units in use kept, or nil
-- if they do not fit and may not be cut.
local function converted(row, set, cut)
	advance(row)
	local H = copyOf(row.holds) -- the row as it was may still be needed
	local next = {version = row.version, fp = set.fp, last = row.last, rules = set.rules, states = {}, holds = H}
	local rebooked, anew = {}, H.rebooked ~= nil
	for i, r in ipairs(set.rules) do
		local kind, j = kinds[r.kind], nil
		for k, o in ipairs(row.rules) do
			if o.name == r.name then j = k end
		end
		rebooked[i] = j and H.rebooked and H.rebooked[j] or false
		if not j then
			next.states[i] = kind.fresh(r, now)
			rebooked[i], anew = rebookedAgain(H, nil, NEVER), true
		else
			local old, state = row.rules[j], row.states[j]
			local ok, s = kind.adopt(r, old, state, H, cut)
			if not ok then
				rebooked[i], anew = rebookedAgain(H, rebooked[i], kinds[old.kind].since(old, state)), true
				s = kind.book(r, kinds[old.kind].used(old, state, H), cut)
			end
			if not s then return nil end
			next.states[i] = s
		end
		if r.kind == 'g' and not cut then
			local w, f = span(r, H.units)
			if after(w, f, r.Mw, r.Mf) then return nil end
		end
	end
	if H.count == 0 then return next end
	if anew then H.rebooked = rebooked end
	if not set.endless then endHoldsBy(H, now + set.longest) end
	H.converted = true
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
	local row = {version = set.version, fp = set.fp, last = now, rules = set.rules, states = {}, holds = noHolds()}
	row.holds.stale = true -- what is at the keys of its holds, if anything
	for i, r in ipairs(set.rules) do row.states[i] = kinds[r.kind].fresh(r, call.epoch) end
	return row
end

-- Deciding.

local function report(row, i)
	local r, s = row.rules[i], row.states[i]
	local held = row.holds.count > 0 and HELD or 0
	return {1, i - 1, kinds[r.kind].remaining(r, s, row.holds), now, reachable(kinds[r.kind].resetAt(r, s, row.holds)), held}
end

-- ahead returns what a row will be at an instant if nothing happens until then.
local function ahead(row, instant)
	local copy = {last = row.last, rules = row.rules, states = {}, holds = copyOf(row.holds)}
	for i, s in ipairs(row.states) do copy.states[i] = copyOf(s) end
	at(instant, advance, copy)
	return copy
end

-- stillRefused returns when a rule admits a charge that it refuses in a row which will be as it is at an instant, or nil
-- if it admits it.
local function stillRefused(row, i, cost)
	local r, s = row.rules[i], row.states[i]
	local kind = kinds[r.kind]
	if not kind.admits(r, s, row.holds, cost) then return kind.retryAt(r, s, row.holds, cost) end
end

-- mayRefuseAgain says whether a rule can refuse a charge later than it would have admitted it; see algo's.
local function mayRefuseAgain(r, H)
	if r.kind == 'p' then return H.count > 0 end
	for _, class in ipairs(r.paced or {}) do
		if class == H.class then return true end
	end
	return false
end

local requested = {} -- later instants whose windows are needed, a hundred at a time

-- request notes that the calendar of a rule does not have the window of an instant, if so.
local function request(r, instant)
	if call.enough or instant > HORIZON or placeIn(r.cal, instant) or #requested == 100 then return end
	requested[#requested + 1] = instant
end

-- allAdmitFrom returns the first instant from one on at which all rules admit a charge that each admits then or
-- has admitted before, in four rounds at most.
local function allAdmitFrom(row, cost, instant)
	for _ = 1, 4 do
		local before = instant
		for i, r in ipairs(row.rules) do
			if instant < NEVER and mayRefuseAgain(r, row.holds) then
				if r.paced then request(r, instant) end
				instant = at(instant, stillRefused, ahead(row, instant), i, cost) or instant
			end
		end
		if instant == before then break end
	end
	return instant
end

-- judge returns nil if all rules admit a charge, else the refusal of the rule with the
-- longest wait, until all admit it.
local function judge(row, cost)
	local v, costly
	if cost == 0 then return nil end
	for i, r in ipairs(row.rules) do
		local kind, s = kinds[r.kind], row.states[i]
		if not kind.admits(r, s, row.holds, cost) then
			local t = kind.retryAt(r, s, row.holds, cost)
			local most = kind.most(r, row.holds)
			if not v or t > v[4] or (t == NEVER and cost > most and not costly) then
				v = report(row, i)
				costly = cost > most
				v[1], v[4], v[6] = 0, t, v[6] + (costly and 1 or 0)
			end
		end
	end
	if v and #row.rules > 1 then v[4] = allAdmitFrom(row, cost, v[4]) end
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

-- The kinds whose units return one by one, a time after they were used, so that a limit has room sooner if less
-- is charged until then. See algo's returnsGradually for the others.
local GRADUAL = {g = true, s = true, l = true}

-- recallHelps says whether each limit that refuses a charge is of such a kind.
local function recallHelps(row, cost)
	for i, r in ipairs(row.rules) do
		if not GRADUAL[r.kind] and not kinds[r.kind].admits(r, row.states[i], row.holds, cost) then return false end
	end
	return true
end

-- recall is for a charge that was refused: if the level of its class covers it, and only other limits refuse,
-- whose units return gradually, no class borrows until they have room for it. It returns the lending's state and
-- what it was before, if that changes something.
local function recall(row, c, refusal)
	local H = row.holds
	if #row.rules == 1 or refusal[4] == NEVER then return nil end
	for i, r in ipairs(row.rules) do
		local s = row.states[i]
		if r.kind == 'p' then
			H.hold = call.op == 'hold' or call.op == 'holds'
			local before, helps = s.lendAt, recallHelps(row, c[3])
			H.hold = false
			if helps and kinds.p.recall(r, s, H, c[3], refusal[4]) then return s, before end
		end
	end
end

-- healed reduces a TAT that is further ahead than any debt, because the clock was set back, and levels and
-- recalls of a Lending likewise. They are written by refusals, too, which change nothing else: otherwise they
-- would stay ahead.
local function healed(row)
	local did = false
	for i, r in ipairs(row.rules) do
		local s = row.states[i]
		if r.kind == 'g' and after(s.w, s.f, now + r.Mw, r.Mf) then
			s.w, s.f, did = now + r.Mw, r.Mf, true
		elseif r.kind == 'p' and (s.at > furthest(r) or s.lendAt > now + RECALL) then
			s.at, s.lendAt, did = min(s.at, furthest(r)), min(s.lendAt, now + RECALL), true
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
	local H = row.holds
	H.hold = true
	local v = judge(row, c[3])
	H.hold = false
	if v then return v, healed(row) end
	if H.count >= call.most then
		v = tightest(row)
		v[1], v[4], v[6], v.crowded = 0, H.first, 2 + HELD, true
		return v, false
	end
	charge(row, c[3])
	H.number = H.number + 1
	addHold(H, {id = c.id, units = c[3], expiry = c[4], charged = now, number = H.number, class = H.class})
	return tightest(row), true
end

ops.holds = ops.hold

-- settled returns the outcome of a hold that was settled before, if that is remembered.
local function settled(outcome)
	if not outcome then return {0, 0, 0, 0, 0, 0}, false end
	return {1, 0, outcome.refunded, outcome.overrun, 0, 0}, false
end

function ops.settle(row, c)
	local H = row.holds
	local h, before = find(H, c.id)
	if not h then return settled(before) end
	local over, back, refunded, overrun = max(0, c[3] - h.units), max(0, h.units - c[3]), 0, 0
	H.class, H.ending = h.class, h.units
	for i, r in ipairs(row.rules) do
		local kind, s = kinds[r.kind], row.states[i]
		if r.kind ~= 'c' then overrun = over end
		refunded = max(refunded, kind.refund(r, s, H, chargedAt(H, h, i), back))
		if over > 0 then kind.charge(r, s, H, over) end
	end
	dropHold(H, h)
	local upto = h.expiry
	if upto == NEVER then upto = now + UNENDING end
	H.done[h.id] = {refunded = refunded, overrun = overrun, expiry = upto}
	return {1, 0, refunded, overrun, 0, 0}, true
end

function ops.renew(row, c)
	local H = row.holds
	local h = find(H, c.id)
	if not h then return {0, 0, 0, 0, 0, 0}, false end
	moveHold(H, h, max(c[4], now))
	return {1, 0, 0, 0, 0, 0}, true
end

function ops.reset(row)
	for i, r in ipairs(row.rules) do kinds[r.kind].reset(r, row.states[i], row.holds, i) end
	return {1, 0, 0, 0, 0, 0}, true
end

function ops.refund(row, c)
	for i, r in ipairs(row.rules) do kinds[r.kind].undo(r, row.states[i], row.holds, c[4], c[3]) end
	return {1, 0, 0, 0, 0, 0}, true
end

-- learnCalendars sets the calendar of a row with other limits: the row has only the end of its
-- last window, and would assume that the next one is as long.
local function learnCalendars(row, set)
	for _, r in ipairs(row.rules) do
		for _, o in ipairs(set.rules) do
			if r.cal and o.cal and o.name == r.name then r.cal = o.cal end
		end
	end
end

-- These operate on a row as it is: they convert nothing, and create no row.
local asItIs = {settle = true, renew = true, reset = true, refund = true}

-- lifetime returns for how many ms a row must be kept: until it equals a new one.
local function lifetime(row)
	local last = now
	for i, r in ipairs(row.rules) do
		local kind = kinds[r.kind]
		last = max(last, kind.resetAt(r, row.states[i], row.holds))
		if r.miss or r.mw then last = max(last, kind.resetAt(r, kind.fresh(r, call.epoch), noHolds())) end
	end
	local H, r, s = row.holds, row.rules[1], row.states[1]
	if H.count > 0 then last = max(last, H.last) end
	if last >= NEVER then return MONTH + call.keep end
	if r.kind == 'g' then -- as take.lua and small.lua, which rely on it, and from the values that are written
		local quantum = max(4000000, 16 * r.b / r.a)
		last = max(last, (floor(max(s.w, EPOCH) / quantum) + 1) * quantum)
	end
	return math.ceil((last - now) / 1000) + call.keep
end

-- Writing.

-- chunks adds a command with many arguments to a list, a thousand in each.
local function chunks(list, command, key, args)
	for i = 1, #args, 1000 do
		list[#list + 1] = {command, key, join(args, i, min(i + 999, #args))}
	end
end

-- holdCommands returns what to write of a row's holds.
local function holdCommands(H)
	local list, add, set, drop = {}, {}, {}, {}
	if H.stale then list[1] = {'ZREMRANGEBYSCORE', H.z, '0', '+inf'} end
	if H.floor >= 0 and #H.over > 0 then
		list[#list + 1] = {'ZREMRANGEBYSCORE', H.z, '0', text(H.floor)}
		chunks(list, 'HDEL', H.h, H.over)
	end
	for _, member in pairs(H.gone) do drop[#drop + 1] = member end
	for _, h in ipairs(H.new) do
		add[#add + 1], add[#add + 2] = text(h.expiry), pack('>I7', h.units) .. h.id .. h.class
		set[#set + 1], set[#set + 2] = h.id, pack('>I7I7I7I4', h.units, h.expiry, h.charged + 1, h.number) .. h.class
	end
	for id, o in pairs(H.done) do
		add[#add + 1], add[#add + 2] = text(o.expiry - SETTLED), id
		set[#set + 1], set[#set + 2] = id, pack('>I7I7I7', o.expiry, o.refunded, o.overrun)
	end
	chunks(list, 'ZREM', H.z, drop)
	chunks(list, 'ZADD', H.z, add)
	chunks(list, 'HSET', H.h, set)
	return list
end

-- written returns what to write of a row: its text, for how many ms it is kept, and what to write
-- of its holds.
local function written(row)
	local H, ms = row.holds, lifetime(row)
	local it = {text = textOf(row), ms = text(ms), holds = H, trim = next(H.done) ~= nil}
	it.extend = #H.new > 0 or it.trim or (H.count > 0 and (H.converted or H.last == NEVER))
	if it.extend or next(H.gone) or #H.over > 0 then
		needsKeys(H)
		it.commands = holdCommands(H)
	end
	return it
end

-- forget drops settled holds from the keys: those whose expiry has come, some at a time, and
-- what is too many.
local function forget(H)
	local ids = redis.call('ZRANGEBYSCORE', H.z, '-inf', text(now - SETTLED), 'LIMIT', 0, 16)
	if #ids == 0 then
		local many = redis.call('ZCOUNT', H.z, '-inf', '(0') - OUTCOMES
		if many > 0 then ids = redis.call('ZRANGEBYSCORE', H.z, '-inf', '(0', 'LIMIT', 0, min(many, 1000)) end
	end
	if #ids == 0 then return end
	redis.call('ZREM', H.z, join(ids))
	redis.call('HDEL', H.h, join(ids))
end

local function write(key, it)
	redis.call('SET', key, it.text, 'PX', it.ms)
	if not it.commands then return end
	local H = it.holds
	for _, command in ipairs(it.commands) do redis.call(join(command)) end
	if it.trim then forget(H) end
	-- The keys of holds are kept as long as the row, which may need them until then.
	if it.extend and redis.call('PTTL', H.z) < tonumber(it.ms) then
		local ms = text(it.ms + 4000) -- so that not every hold sets the expiry again
		redis.call('PEXPIRE', H.z, ms)
		redis.call('PEXPIRE', H.h, ms)
	end
end

-- The call.

local rows, count = {}, call.rows or #KEYS

-- withKeys sets the keys of a row's holds, if the call has them.
local function withKeys(row, k)
	if call.rows then row.holds.z, row.holds.h = KEYS[count + 2 * k - 1], KEYS[count + 2 * k] end
	return row
end

-- read returns the row at a key, nil if there is none, or nil and an error.
local function read(k)
	local text = redis.pcall('GET', KEYS[k])
	local row
	if not text then
		return nil
	elseif type(text) == 'table' then
		if not string.find(text.err, 'WRONGTYPE', 1, true) then return nil, text end
	elseif string.byte(text) == 255 then
		row = bigRow(text)
	elseif #text == 12 or #text == 34 then
		row = smallRow(text)
	end
	if not row then return nil, redis.error_reply('ERR weir: a stored value is not a row of weir') end
	return withKeys(row, k)
end

local out, writes = {0, now}, {}

-- ready returns the row of a charge under the charge's limits, or nil if the units in use do
-- not fit them.
local function ready(c)
	local row, set = rows[c[1]], call.sets[c[2]]
	if not row then return withKeys(newRow(set), c[1]) end
	local same = isUnder(row, set)
	if same then row.rules, row.fp, row.bits = set.rules, set.fp, nil end
	advance(row)
	-- A refusal writes expired holds, too, so that the next call need not look them up again.
	if row.holds.folded and call.op ~= 'peek' then
		writes[c[1]], row.holds.folded = written(row), false
	end
	if same then return row end
	return converted(row, set, false)
end

local function isGCRA(row)
	for _, r in ipairs(row.rules) do
		if r.kind ~= 'g' then return false end
	end
	return true
end

-- hasRatesOf says whether two rows of GCRA have limits of the same names and rates.
local function hasRatesOf(row, old)
	for i, r in ipairs(row.rules) do
		local o = old.rules[i]
		if not o or o.name ~= r.name or o.a ~= r.a or o.b ~= r.b then return false end
	end
	return #row.rules == #old.rules
end

-- refusalConverts says whether a refused call leaves a row under the limits of the call: if both are
-- GCRA, whose units are converted exactly, of other rates. The time to retry was computed by the rates of the call.
local function refusalConverts(old, row)
	return old and old ~= row and row.holds.count == 0 and isGCRA(old) and isGCRA(row) and not hasRatesOf(row, old)
end

-- readyAsItIs returns the row of a charge as it is, or nil.
local function readyAsItIs(c)
	local row, set = rows[c[1]], call.sets[c[2]]
	if not row then return nil end
	if isUnder(row, set) then
		row.rules, row.fp, row.bits = set.rules, set.fp, nil
	else
		learnCalendars(row, set)
	end
	advance(row)
	return row
end

-- debit charges the units used before the call, and returns the index of a charge whose limits
-- they do not fit.
local function debit()
	local debited = {}
	for n, units in ipairs(call.used or {}) do
		if units > 0 then
			local c = call.charges[n]
			local row = ready(c)
			if not row then return n end
			row.holds.class = c.class
			charge(row, units)
			rows[c[1]], debited[c[1]] = row, true
		end
	end
	for k in pairs(debited) do writes[k] = written(rows[k]) end
	return nil
end

-- decide executes the call, except for writing.
local function decide()
	for k = 1, count do
		local row, err = read(k)
		if err then return err end
		rows[k] = row
	end
	for n, c in ipairs(call.charges) do
		local row, set = rows[c[1]], call.sets[c[2]]
		c.class = call.classes and call.classes[n] or ''
		if row and row.version > set.version then
			if not call.lost then return {1, now} end
			row.version = set.version
		end
		if row and row.version < set.version then
			if row.version < set.since then return {2, now, n, row.version} end
			rows[c[1]] = inForce(row, set)
		end
	end
	local unfit = debit()
	if unfit then return {4, now, unfit} end

	-- kept are the rows to be written if all are refused, as they stay under the limits that refused, are healed, or units
	-- are recalled: of several charges of a row, only the first is considered, whose row is not charged yet.
	local expiry, changed, refused, seen, kept = NEVER, {}, false, {}, {}
	if call.ttl and call.ttl >= 0 then expiry = now + call.ttl end
	for n, c in ipairs(call.charges) do
		local k, v, did, row = c[1], {0, 0, 0, 0, 0, 0}, false, nil
		c[4], c.id = c[4] or expiry, ARGV[1 + n]
		if asItIs[call.op] then
			row = readyAsItIs(c)
			if row then
				row.holds.class = c.class
				v, did = ops[call.op](row, c)
			elseif call.op == 'settle' then -- a row may be forgotten before the outcome is
				local _, before = find(withKeys({holds = noHolds()}, k).holds, c.id)
				v = settled(before)
			end
		else
			row = ready(c)
			if not row then return {4, now, n} end
			row.holds.class = c.class
			v, did = ops[call.op](row, c)
			if v[1] == 0 and did and row == rows[k] and not seen[k] then kept[k] = written(row) end -- healed
			if v[1] == 0 and refusalConverts(rows[k], row) then
				did = call.op == 'each' or call.op == 'holds'
				if not seen[k] and c[3] > 0 then kept[k] = written(row) end
			end
			if v[1] == 0 and row == rows[k] and not v.crowded then
				local s, before = recall(row, c, v)
				if s and (call.op == 'each' or call.op == 'holds') then
					did = true
				elseif s then
					if not seen[k] then kept[k] = written(row) end
					s.lendAt = before -- for what else is in the call
				end
			end
			seen[k] = true
			if v[1] == 0 then refused = true end
			-- If the clock was set back, durations are reported from now.
			v[4], v[5] = (v[4] == NEVER) and -1 or v[4] - now, (v[5] == NEVER) and -1 or v[5] - now
		end
		if did then rows[k], changed[k] = row, true end
		for i = 1, 6 do out[#out + 1] = v[i] end
	end
	if refused and (call.op == 'all' or call.op == 'hold') then
		for k, it in pairs(kept) do writes[k] = it end
		return out
	end
	for k in pairs(changed) do writes[k] = written(rows[k]) end
	return out
end

for _, set in ipairs(call.sets) do
	for _, r in ipairs(set.rules) do
		if r.cal and (now < r.cal[1] or now >= r.cal[r.paced and 2 or 3]) then return {3, now} end
	end
end

local ok, reply = pcall(decide)
if not ok then
	if reply == NEEDS_KEYS then return {5, now} end
	if type(reply) == 'table' then return reply end -- an error of a command
	error(reply, 0)
end
if reply == out then
	if #requested > 0 then return {3, now, join(requested)} end
	for k, it in pairs(writes) do write(KEYS[k], it) end
end
return reply
