-- ls.results: what is added comes back, keys are what they say, handles speak for themselves.
local ls = require "lockstep"

local target = ls.model()
local engine = ls.engine(target, { context = 64 })
local results = ls.results("round_trip", { target = engine, max_new = 8 })
assert(results.n == 0 and results.path:match "round_trip%.jsonl$")

local data = {
  whole = 3, negative = -7, big = math.maxinteger, half = 0.5, tenth = 0.1, tiny = 1e-300,
  third = 1 / 3, yes = true, no = false, empty = {},
  text = "a \"quoted\"\n\ttext \\ \u{e9}\u{1F600}",
  list = { 1, 2, { x = 1 } }, nested = { a = { b = { c = {} } } },
}
local key = { prompt = "p1", policy = ls.policy("fixed", { n = 2 }), temperature = 0 }
assert(not results:has(key) and results:get(key) == nil)
results:add(key, data)
assert(results:has(key) and results.n == 1)

local function equal(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b and math.type(a) == math.type(b)
  end
  for k, v in pairs(a) do if not equal(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end
assert(equal(results:get(key), data))

-- NaN and infinities are null, and null is absent
results:add({ prompt = "p2" }, { nan = 0 / 0, inf = math.huge, x = 1 })
local back = results:get { prompt = "p2" }
assert(back.nan == nil and back.inf == nil and back.x == 1)

-- a key is what it says, not how it was written
assert(results:has { temperature = 0, policy = ls.policy("fixed", { n = 2 }), prompt = "p1" })
assert(results:has { prompt = "p1", policy = key.policy, temperature = 0.0 })
assert(not results:has { prompt = "p1", policy = ls.policy("fixed", { n = 3 }), temperature = 0 })
assert(not results:has { prompt = "p1", policy = ls.policy("svip"), temperature = 0 })
assert(not results:has { prompt = "p1", temperature = 0 })

local record = results:records()[1]
assert(#results:records() == 2 and #record.cell == 64)
assert(record.key.policy.name == "fixed" and record.key.policy.options == "n=2")
assert(#record.key.policy.digest == 64)
assert(record.common.max_new == 8 and record.common.target.model.digest == target.digest)
local run = record.run
assert(run.version == ls.version and run.script == "test_module_results.lua")
assert(#run.script_digest == 64)
assert(run.seed == ls.seed and run.at:match "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$")
assert(#run.models == 1 and run.models[1].digest == target.digest and run.models[1].n_params > 0)
assert(#run.devices == 1 and run.devices[1]:find("ieee", 1, true))

-- closed, it is free for another handle; other common fields make other cells
results:close()
assert(not pcall(function() return results.n end))
local other = ls.results("round_trip", { target = engine, max_new = 9 })
assert(other.n == 2 and not other:has(key))
other:close()
local same = ls.results("round_trip", { max_new = 8, target = ls.engine(target, { context = 64 }) })
assert(same:has(key), "an engine with the same settings is the same in a key")
