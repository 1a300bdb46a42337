-- acceptance_rate.lua - how much of a draft is kept, and what that buys in time.
--
-- Question   On the same prompts: how do draft-length policies differ in acceptance, in tokens per
--            target pass, and in time against plain decode?
-- Grid       policies x prompts x temperatures, one seed. A cell is one policy on one prompt. Plain
--            decode of the same text is timed right beside it, first in every other cell, so that a
--            drift of the machine meets both.
-- Metrics    acceptance  kept / judged drafts: the censored-geometric estimate, where a draft kept
--                        whole says only "at least this long"
--            per draft   drafts kept in a round that drafted
--            per pass    tokens a target pass gave, the bonus token counted
--            speed       plain time / speculative time, without the target's prompt, with the
--                        draft's: ratio of sums over the prompts; and geometric mean of the
--                        prompts' own ratios, p of "no difference" (Holm over all rows)
-- Intervals  95 %, by resampling whole prompts: the tokens of one prompt depend on each other.
-- Keeps      OUT/acceptance_rate.jsonl; a second run does only what is missing, then reports.

local ls = require "lockstep"

local opt = ls.options {
  { "policies", { "fixed", "heuristic", "svip" }, "length policies: names or paths" },
  { "width", 4, "draft length of 'fixed'" },
  { "rule", "exact", "acceptance rule: a name or path" },
  { "drafter", "model", "where drafts come from: model, ngram, or the target's layers:N" },
  { "sets", {}, "prompt sets: names or paths (none: all of them)" },
  { "prompts", 20, "prompts, taken from the sets in turn" },
  { "max_new", 96, "tokens a prompt" },
  { "temperatures", { "0", "1" }, "0 is greedy" },
  { "seed", ls.seed, "of the prompt sample and of all draws" },
  { "depth", 5, "deepest draft position of the second table" },
  { "by", "set", "third table: by 'set' or by 'task'" },
}

local target = ls.model "target"
local engine = ls.engine(target)
local layers = opt.drafter:match "^layers:(%d+)$"
local drafter, who = nil, opt.drafter
if opt.drafter == "model" then
  local draft = ls.model "draft"
  drafter, who = ls.drafter("model", ls.engine(draft)), draft.name
elseif opt.drafter == "ngram" then
  drafter = ls.drafter("ngram", target)
elseif layers then
  drafter = ls.drafter("model", ls.engine(target, { layers = math.tointeger(layers) }))
else
  error("drafter: model, ngram or layers:N, not " .. opt.drafter, 0)
end
local rule = ls.rule(opt.rule)

local policies, temperatures, prompts = {}, {}, {}
for i, name in ipairs(opt.policies) do
  policies[i] = ls.policy(name, name == "fixed" and { n = opt.width } or nil)
end
for i, text in ipairs(opt.temperatures) do
  temperatures[i] = tonumber(text) or error("temperatures: not a number: " .. text, 0)
end
local sets = #opt.sets > 0 and opt.sets or nil
for _, p in ipairs(ls.prompts(sets, { n = opt.prompts, seed = opt.seed })) do
  p.ids = target:encode(p.prompt)
  if #p.ids + opt.max_new <= engine.context then
    prompts[#prompts + 1] = p
  else
    ls.note(string.format("%s: left out: %d tokens and %d new ones do not fit the context of %d",
      p.id, #p.ids, opt.max_new, engine.context))
  end
end
if #prompts == 0 then error("no prompt is left; lower max_new", 0) end

local results = ls.results("acceptance_rate", {
  target = engine, drafter = drafter, rule = rule, max_new = opt.max_new, seed = opt.seed,
})

---- measuring -------------------------------------------------------------------------------------

local function key_of(prompt, policy, temperature)
  return {
    prompt = { id = prompt.id, digest = prompt.digest },
    policy = policy, temperature = temperature,
  }
end

-- Without a policy: plain decode.
local function decode(prompt, policy, temperature)
  return ls.generate {
    target = engine, prompt = prompt.ids, max_new = opt.max_new,
    temperature = temperature, seed = opt.seed,
    drafter = policy and drafter, policy = policy, rule = policy and rule,
  }
end

local function measure(prompt, policy, temperature, plain_first)
  local plain = plain_first and decode(prompt, nil, temperature)
  local spec = decode(prompt, policy, temperature)
  plain = plain or decode(prompt, nil, temperature)
  return {
    counts = spec.counts, same = spec.digest == plain.digest,
    n_prompt = #prompt.ids, n_new = spec.n_new, plain_n_new = plain.n_new,
    decode_us = spec.decode_us, plain_decode_us = plain.decode_us,
  }
end

decode(prompts[1], policies[1], 0) -- brings the weights into memory; not kept
local n_done, n_cell = 0, #prompts * #policies * #temperatures
for i, prompt in ipairs(prompts) do
  for t, temperature in ipairs(temperatures) do
    for k = 1, #policies do
      local policy = policies[(i + k) % #policies + 1] -- who goes first changes with the prompt
      local key = key_of(prompt, policy, temperature)
      if not results:has(key) then
        results:add(key, measure(prompt, policy, temperature, (i + t + k) % 2 == 0))
      end
      n_done = n_done + 1
      ls.progress(n_done, n_cell, policy.name .. "  " .. prompt.id)
    end
  end
end

---- reporting -------------------------------------------------------------------------------------

-- An arm is a policy at a temperature: its cells, one a prompt, of one group or of all.
local function arm(policy, temperature, group)
  local a = { counts = {}, plain_us = {}, spec_us = {}, n_forked = 0 }
  for _, prompt in ipairs(prompts) do
    if not group or prompt[opt.by] == group then
      local cell = results:get(key_of(prompt, policy, temperature))
      local i = #a.counts + 1
      a.counts[i] = cell.counts
      a.spec_us[i] = cell.decode_us
      -- a lossy rule may end its text elsewhere: plain time for as many tokens
      a.plain_us[i] = cell.plain_decode_us * cell.n_new / cell.plain_n_new
      a.n_forked = a.n_forked + (cell.same and 0 or 1)
    end
  end
  return a
end

local function each_arm(f)
  for _, temperature in ipairs(temperatures) do
    local title = temperature == 0 and "greedy" or "temperature " .. temperature
    for _, policy in ipairs(policies) do f(title, policy, temperature) end
  end
end

local function show(v, digits)
  local f = "%." .. digits .. "f"
  if not v.estimate then return "-" end
  if not v.low then return string.format(f, v.estimate) end
  return string.format(f .. " [" .. f .. ", " .. f .. "]", v.estimate, v.low, v.high)
end

local function rate(a, name, digits) return show(ls.stats.interval(a.counts, name), digits) end
local function speed(a) return show(ls.stats.ratio(a.plain_us, a.spec_us), 2) end

print(string.format("%s drafts for %s on %s\n%d prompts x %d tokens, rule %s (%s), seed %d; " ..
  "95 %% intervals over prompts\n", who, target.name, engine.device,
  #prompts, opt.max_new, rule.name, rule.kind, opt.seed))

local rows, p_values, n_forked = {}, {}, 0
each_arm(function(title, policy, temperature)
  local a = arm(policy, temperature)
  local paired = ls.stats.speed(a.plain_us, a.spec_us)
  p_values[#p_values + 1] = paired.p or 1
  n_forked = n_forked + a.n_forked
  rows[#rows + 1] = {
    title, policy.name, rate(a, "acceptance", 3), rate(a, "per_draft", 2), rate(a, "per_pass", 2),
    speed(a), show(paired, 2),
  }
end)
for i, p in ipairs(ls.stats.holm(p_values)) do
  rows[i][8] = p < 0.001 and "<0.001" or string.format("%.3f", p)
end
ls.table {
  title = "By policy",
  head = { "", "policy", "acceptance", "per draft", "per pass", "speed (sums)", "speed (paired)",
    "p" },
  rows = rows,
}

rows = {}
each_arm(function(title, policy, temperature)
  local a = arm(policy, temperature)
  local judged = ls.stats.pool(a.counts).judged
  for depth = 1, math.min(opt.depth, #judged) do
    rows[#rows + 1] = {
      title, policy.name, depth, judged[depth],
      show(ls.stats.interval(a.counts, "conditional", depth), 3),
      show(ls.stats.interval(a.counts, "unconditional", depth), 3),
    }
  end
end)
ls.table {
  title = "By depth: kept, of the drafts judged there; and of the rounds that drafted that deep",
  head = { "", "policy", "depth", "judged", "conditional", "unconditional" },
  rows = rows,
}

local groups, seen = {}, {}
for _, prompt in ipairs(prompts) do
  local name = prompt[opt.by]
  if not seen[name] then groups[#groups + 1], seen[name] = name, true end
end
rows = {}
each_arm(function(title, policy, temperature)
  for _, group in ipairs(groups) do
    local a = arm(policy, temperature, group)
    rows[#rows + 1] = {
      title, policy.name, group, #a.counts, rate(a, "acceptance", 3), rate(a, "per_pass", 2),
      speed(a),
    }
  end
end)
ls.table {
  title = "By " .. opt.by,
  head = { "", "policy", opt.by, "prompts", "acceptance", "per pass", "speed (sums)" },
  rows = rows,
}

-- What the exact rule promises, as far as texts show it; `lockstep check` looks at the bits.
print(string.format("rule %s is %s: %d of %d texts differ from plain decode",
  rule.name, rule.kind, n_forked, n_cell))
print("results: " .. results.path)
if rule.kind == "exact" and n_forked > 0 then
  ls.fail(n_forked .. " texts differ from plain decode under an exact rule")
end
