-- ls.stats: counts, rates and intervals as metrics.h and interval.h define them.
local ls = require "lockstep"
local stats = ls.stats

local function near(a, b) return math.abs(a - b) < 1e-9 end

-- the log of C021: per-position conditional rates 0.75, 1, 0.5, 1; 2.6 tokens a pass
local rounds = {}
for i, r in ipairs { { 4, 4, 4 }, { 4, 2, 3 }, { 4, 0, 1 }, { 2, 2, 2 }, { 0, 0, 0 } } do
  rounds[i] = { position = i, planned = r[1], proposed = r[1], accepted = r[2], evaluated = r[3],
    emitted = r[2] + 1 }
end
local counts = stats.count(rounds)
assert(counts.n_round == 5 and counts.n_drafted == 14 and counts.n_accepted == 8)
local rates = stats.rates(counts)
assert(near(rates.yield, 8 / 14) and near(rates.per_pass, 2.6) and near(rates.acceptance, 0.8))
for depth, rate in ipairs { 0.75, 1, 0.5, 1 } do assert(near(rates.conditional[depth], rate)) end
assert(#counts.judged == 4 and counts.judged[1] == 4 and counts.judged[4] == 1)

-- what was never drafted has no rate; pooling adds counts, not ratios (C022)
local none = stats.rates(stats.count { { emitted = 1 } })
assert(none.acceptance == nil and none.yield == nil and none.per_pass == 1)
local function share(k, n)
  return { n_drafted = n, n_accepted = k, n_refused = n - k, n_evaluated = n }
end
assert(near(stats.rates(stats.pool { share(1, 2), share(9, 10) }).acceptance, 10 / 12))

-- an interval contains its estimate; one prompt has none
local list = {}
for i = 1, 20 do list[i] = share(5 + i % 4, 10) end
local v = stats.interval(list, "acceptance")
assert(v.n_cluster == 20 and v.low < v.estimate and v.estimate < v.high and v.level == 0.95)
assert(near(v.estimate, 130 / 200))
local one = stats.interval({ share(1, 2) }, "acceptance")
assert(near(one.estimate, 0.5) and one.low == nil)
assert(stats.interval({}, "acceptance").estimate == nil)
local wide = stats.interval(list, "acceptance", { level = 0.99, seed = 7 })
assert(wide.low <= v.low and wide.high >= v.high)
list = { counts, counts, counts }
assert(near(stats.interval(list, "conditional", 3).estimate, 0.5))
assert(stats.interval(list, "unconditional", 64).estimate == nil)

-- paired times: twice as fast everywhere is certain, Holm corrects upwards
local a, b = {}, {}
for i = 1, 10 do a[i], b[i] = 2 * i, i end
local speed = stats.speed(a, b)
assert(near(speed.estimate, 2) and speed.p < 0.01)
assert(near(stats.ratio(a, b).estimate, 2))
assert(near(stats.ratio_diff(a, b, b, b).estimate, 1))
local holm = stats.holm { 0.01, 0.04, 0.03 }
assert(near(holm[1], 0.03) and near(holm[2], 0.06) and near(holm[3], 0.06))
assert(math.abs(stats.rule_of_three(1000) - 3 / 1000) < 1e-5 and stats.rule_of_three(0) == 1)
