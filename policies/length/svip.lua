-- Stops drafting once the draft model's entropy says that what follows is unlikely to be accepted.
-- Paper    Zhang et al. 2024, "Draft Model Knows When to Stop: A Self-Verification Length Policy
--          for Speculative Decoding" (SVIP), arXiv 2411.18462
-- Options  k    weight of the entropy (nats) in the bound, 0 to 10
--          h    the bound sqrt(k * entropy) above which drafting stops, 0 to 10
--          max  most tokens a round, 1 to 64
-- State    none
-- Notes    1 - sqrt(KL / 2) bounds the acceptance from below; the paper replaces the unknown KL by
--          a constant times the draft's entropy. k, h and max are those of its released code.
return {
  name = "svip",
  paper = "arXiv 2411.18462",
  options = { k = 0.15, h = 0.3, max = 40 },
  ranges = { k = { 0, 10 }, h = { 0, 10 }, max = { 1, 64 } },

  plan = function(self, ctx)
    return self.options.max
  end,

  more = function(self, ctx, step)
    return math.sqrt(self.options.k * step.entropy) <= self.options.h
  end,
}
