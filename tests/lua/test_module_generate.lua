-- ls.generate, ls.plain and ls.check on a target and its rounded twin as draft.
local ls = require "lockstep"

local target, draft = ls.model(), ls.model "draft"
local engine = ls.engine(target, { context = 128 })
local drafter = ls.drafter("model", ls.engine(draft, { context = 128 }))
assert(target.vocab == 266 and target.context == 512 and target.n_layers == 2)
assert(#target.digest == 64 and target.digest ~= draft.digest)
assert(target.about.digest == target.digest and engine.about.model.digest == target.digest)
assert(engine.context == 128 and engine.about.kv == "f32" and engine.about.block_rows == 0)

local ids = target:encode "once upon"
assert(target:decode(ids) == "once upon")

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do if a[i] ~= b[i] then return false end end
  return true
end

for _, temperature in ipairs { 0, 1 } do
  local job = { target = engine, prompt = "once upon", max_new = 40, temperature = temperature,
    seed = 5 }
  local plain = ls.generate(job)
  assert(plain.n_new == 40 and #plain.tokens == 40 and #plain.rounds == 40)
  assert(plain.ended == "length" and plain.n_prompt == #ids and plain.rule_kind == "exact")
  assert(plain.counts.n_round == 40 and plain.counts.n_drafted == 0)
  assert(plain.decode_us > 0 and math.abs(plain.total_us - plain.prefill_us - plain.decode_us) < 1)
  assert(plain.seed == 5)

  job.prompt = ids
  assert(ls.generate(job).digest == plain.digest, "text and its ids are one prompt")
  job.seed = 6
  local other = ls.generate(job)
  assert((other.digest == plain.digest) == (temperature == 0), "the seed matters iff sampled")
  job.seed = 5

  job.drafter, job.policy = drafter, ls.policy("fixed", { n = 4 })
  local seen = 0
  job.on_round = function(r)
    seen = seen + 1
    assert(r.proposed == #r.draft and r.position >= #ids)
  end
  local spec = ls.generate(job)
  job.on_round = nil
  assert(seen == #spec.rounds)
  assert(same(spec.tokens, plain.tokens) and spec.text == plain.text)
  assert(spec.digest == plain.digest)
  assert(spec.counts.n_accepted > 0 and spec.counts.n_round < 40)
  assert(spec.counts.n_emitted == 40)

  -- the draft is a function of the seed too: every run is the same run
  local again = ls.generate(job)
  assert(#again.rounds == #spec.rounds)
  for i, r in ipairs(again.rounds) do assert(r.accepted == spec.rounds[i].accepted) end

  -- a policy of this script's own, with a state of its own
  local calls = 0
  job.policy = ls.policy {
    name = "saw", options = { top = 5 },
    begin = function(self, ctx) self.n = 0 end,
    plan = function(self, ctx)
      calls = calls + 1
      self.n = self.n % self.options.top + 1
      return self.n
    end,
  }
  assert(ls.generate(job).digest == plain.digest and calls > 0)
  job.policy = ls.policy({ name = "opt", options = { n = 1 },
    plan = function(self, ctx) return self.options.n end }, { n = 3 })
  assert(job.policy.about.options == "n=3")
  local r = ls.generate(job)
  assert(r.digest == plain.digest and r.rounds[1].planned == 3)

  -- the check agrees, and notices a rule that keeps everything
  local p = ls.plain { target = engine, prompt = ids, max_new = 40, temperature = temperature,
    seed = 5 }
  assert(same(p.tokens, plain.tokens) and p.text == plain.text)
  assert(p.ended == "length" and p.n_new == 40)
  local garbage = ls.drafter("garbage", target)
  for _, block_rows in ipairs { 0, 16 } do
    local e = ls.engine(target, { context = 128, block_rows = block_rows })
    for _, d in ipairs { drafter, garbage, ls.drafter("ngram", target, { max = 4 }) } do
      local c = ls.check { plain = p, target = e, drafter = d,
        policy = ls.policy("fixed", { n = 3 }) }
      assert(c.same and c.n_differ == 0 and c.n_position == 40 and c.n_logit == 40 * target.vocab)
      assert(c.n_cache > 0 and c.fork == nil and #c.digest_logits == 64)
    end
  end
  local c = ls.check { plain = p, drafter = garbage, policy = ls.policy("fixed", { n = 3 }),
    rule = ls.rule { name = "credulous", judge = function() return true end } }
  assert(not c.same and c.fork.position == #ids and #c.fork.line > 0)
end

-- stop strings end the text before themselves
local long = ls.generate { target = engine, prompt = "a", max_new = 60, temperature = 1, seed = 3 }
local cut = long.text:sub(5, 7)
local stopped = ls.generate { target = engine, prompt = "a", max_new = 60, temperature = 1,
  seed = 3, stop = cut }
assert(stopped.ended == "stop" and not stopped.text:find(cut, 1, true))
assert(long.text:sub(1, #stopped.text) == stopped.text)

-- rules from files say what they are
assert(ls.rule("exact").kind == "exact" and ls.rule("rejection").kind == "lossless")
assert(ls.rule("typical", { epsilon = 0.1 }).kind == "lossy")
local lossy = ls.generate { target = engine, prompt = ids, max_new = 20, temperature = 1, seed = 1,
  drafter = drafter, policy = ls.policy("fixed"), rule = ls.rule "typical" }
assert(lossy.rule == "typical" and lossy.rule_kind == "lossy")

-- bits do not depend on the instructions or on who else holds the model
local other = ls.engine(target, { context = 128, simd = "plain" })
target:close()
local a = ls.generate { target = engine, prompt = ids, max_new = 20 }
local b = ls.generate { target = other, prompt = ids, max_new = 20 }
assert(a.digest == b.digest)
