-- Stops drafting after a token to which the draft model gave a small probability.
-- Paper    none; the assistant confidence threshold of Hugging Face transformers, and p_min of
--          llama.cpp
-- Options  threshold  probability of the drafted token below which it is the last, 0 to 1
--          max        most tokens a round, 1 to 64
-- State    none
-- Notes    The unsure token itself is still verified, as in both originals. A drafter without a
--          distribution (prompt look-up) reports probability 1 and is never stopped.
return {
  name = "confidence",
  paper = "Hugging Face transformers; llama.cpp",
  options = { threshold = 0.4, max = 20 },
  ranges = { threshold = { 0, 1 }, max = { 1, 64 } },

  plan = function(self, ctx)
    return self.options.max
  end,

  more = function(self, ctx, step)
    return step.prob >= self.options.threshold
  end,
}
