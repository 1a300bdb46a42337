-- reproducibility.lua - is the text the same, bit for bit, however it is drafted?
--
-- Question   Do tokens, logits and cache depend on the drafter, the draft lengths, the layout of
--            the cache or the number of threads?
-- Grid       drafting x caches x threads x temperatures x prompts. Drafting: every policy of the
--            list, a policy that draws its lengths at random, fixed lengths 1..16, prompt look-up,
--            a drafter of random tokens. Caches: contiguous and paged, f32 and bf16.
-- Reference  plain decode, one row a pass, contiguous, one thread; one for each way of storing keys
--            and values, since that changes the numbers of both.
-- Control    a rule that keeps every draft has to be found out: a check that cannot fail shows
--            nothing.
-- Result     a table; exit status 1 if a single bit differs, or if the control passes.
-- Keeps      nothing: a check is worth what was run just now.

local ls = require "lockstep"

local opt = ls.options {
  { "policies", { "fixed", "heuristic", "confidence", "svip" }, "length policies: names or paths" },
  { "widths", 16, "fixed draft lengths 1..widths" },
  { "sets", {}, "prompt sets: names or paths (none: all of them)" },
  { "prompts", 1, "prompts, taken from the sets in turn" },
  { "max_new", 48, "tokens a prompt" },
  { "temperatures", { "0", "1" }, "0 is greedy" },
  { "threads", { "1", "2" }, "thread counts" },
  { "block_rows", 16, "rows of a block of the paged cache" },
  { "seed", ls.seed, "of the prompt sample and of all draws" },
}

local function numbers(name)
  local out = {}
  for i, text in ipairs(opt[name]) do
    out[i] = tonumber(text) or error(name .. ": not a number: " .. text, 0)
  end
  return out
end
local temperatures, threads = numbers "temperatures", numbers "threads"
local target, draft = ls.model "target", ls.model "draft"

---- the grid --------------------------------------------------------------------------------------

local prompts, longest = {}, 0
local sets = #opt.sets > 0 and opt.sets or nil
for _, p in ipairs(ls.prompts(sets, { n = opt.prompts, seed = opt.seed })) do
  local ids = target:encode(p.prompt)
  if #ids + opt.max_new <= target.context then
    prompts[#prompts + 1] = { id = p.id, ids = ids }
    longest = math.max(longest, #ids)
  end
end
if #prompts == 0 then error("no prompt fits the target's context; lower max_new", 0) end
local context = longest + opt.max_new -- so that the longest text also fills its cache

local function make_engine(kv, n_threads, block_rows)
  return ls.engine(target,
    { kv = kv, threads = n_threads, block_rows = block_rows, context = context })
end

local caches = {}
for i, kv in ipairs { "f32", "bf16" } do
  caches[i] = { kv = kv, plain = make_engine(kv, 1, 0), engines = {} }
  for _, n_threads in ipairs(threads) do
    for _, block_rows in ipairs { 0, opt.block_rows } do
      table.insert(caches[i].engines, make_engine(kv, n_threads, block_rows))
    end
  end
end

local model = ls.drafter("model",
  ls.engine(draft, { context = math.min(context, draft.context), threads = 1 }))
local garbage, ngram = ls.drafter("garbage", target), ls.drafter("ngram", target)

local hostile = ls.policy {
  name = "hostile",
  plan = function(self, ctx) return ctx.rng(0, 100) end, -- nothing at all, or past the room left
  more = function(self, ctx, step) return ctx.rng() < 0.8 end,
}
local four = ls.policy("fixed", { n = 4 })

local methods = {}
local function method(name, drafter, policy)
  table.insert(methods, { name = name, drafter = drafter, policy = policy,
    n_check = 0, n_position = 0, n_kept = 0, n_logit = 0, n_cache = 0, n_differ = 0 })
end
for _, name in ipairs(opt.policies) do method(name, model, ls.policy(name)) end
method("hostile", model, hostile)
method("hostile, garbage", garbage, hostile)
method("fixed, garbage", garbage, four)
method("fixed, ngram", ngram, four)
for width = 1, opt.widths do
  method("fixed " .. width, model, ls.policy("fixed", { n = width }))
end

local control = {
  drafter = garbage, policy = four, noticed = false,
  rule = ls.rule { name = "credulous", judge = function(self, row) return true end },
}

---- the checks ------------------------------------------------------------------------------------

local forks = {}

local function check(m, plain, engine, place)
  local r = ls.check { plain = plain, target = engine, drafter = m.drafter, policy = m.policy }
  m.n_check = m.n_check + 1
  m.n_position, m.n_kept = m.n_position + r.n_position, m.n_kept + r.counts.n_accepted
  m.n_logit, m.n_cache = m.n_logit + r.n_logit, m.n_cache + r.n_cache
  if not r.same then
    m.n_differ = m.n_differ + 1
    table.insert(forks, m.name .. ", " .. place .. ": " .. r.fork.line)
  end
end

local n_done, n_all = 0, #caches * #caches[1].engines * #temperatures * #prompts * #methods
for _, cache in ipairs(caches) do
  for _, temperature in ipairs(temperatures) do
    for _, prompt in ipairs(prompts) do
      local plain = ls.plain { target = cache.plain, prompt = prompt.ids, max_new = opt.max_new,
        temperature = temperature, seed = opt.seed }
      for _, engine in ipairs(cache.engines) do
        local place = string.format("%s cache, blocks of %d, %s, temperature %g, prompt %s",
          cache.kv, engine.about.block_rows, engine.device, temperature, prompt.id)
        for _, m in ipairs(methods) do
          check(m, plain, engine, place)
          n_done = n_done + 1
          ls.progress(n_done, n_all, m.name)
        end
      end
      local r = ls.check { plain = plain, drafter = control.drafter, policy = control.policy,
        rule = control.rule }
      control.noticed = control.noticed or not r.same
      plain:close()
    end
  end
end

---- the table -------------------------------------------------------------------------------------

local columns = { "n_check", "n_position", "n_kept", "n_logit", "n_cache", "n_differ" }
local rows, sums = {}, { "all", 0, 0, 0, 0, 0, 0 }
for i, m in ipairs(methods) do
  rows[i] = { m.name }
  for c, name in ipairs(columns) do
    rows[i][c + 1] = m[name]
    sums[c + 1] = sums[c + 1] + m[name]
  end
end
table.insert(rows, sums)
ls.table {
  title = string.format("%s drafts for %s; caches f32 and bf16, contiguous and in blocks of %d; " ..
    "threads %s; temperatures %s", draft.name, target.name, opt.block_rows,
    table.concat(opt.threads, ", "), table.concat(opt.temperatures, ", ")),
  head = { "drafting", "checks", "tokens", "kept drafts", "logits", "cache values", "differ" },
  rows = rows,
}
for i = 1, math.min(#forks, 20) do print(forks[i]) end
print("control (a rule that keeps every draft): " ..
  (control.noticed and "noticed" or "NOT NOTICED"))

if not control.noticed then
  ls.fail("the control passed: this check cannot tell right from wrong")
end
if #forks > 0 then
  ls.fail(string.format("%d of %d checks differ from plain decode", #forks, n_all))
end
print(string.format("no bit differs in %d checks", n_all))
