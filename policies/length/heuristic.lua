-- Drafts two tokens more after a round in which every draft was kept, one less after any other.
-- Paper    none; the `heuristic` schedule of Hugging Face transformers (assisted generation, 2023)
-- Options  n    tokens of the first round, 1 to 64
--          max  most tokens a round, 1 to 64
-- State    self.n, the length of the next round
-- Notes    A full round proves only "at least this many", so one whose drafts were cut short by the
--          room left counts as full when all that fitted were kept. A round without a draft says
--          nothing. The length never falls below 1, so drafting is not switched off for good.
return {
  name = "heuristic",
  paper = "Hugging Face transformers",
  options = { n = 5, max = 32 },
  ranges = { n = { 1, 64 }, max = { 1, 64 } },

  begin = function(self, ctx)
    self.n = math.min(self.options.n, self.options.max)
  end,

  plan = function(self, ctx)
    return self.n
  end,

  observe = function(self, ctx, round)
    if round.proposed == 0 then
      return
    elseif round.accepted == round.proposed then
      self.n = math.min(self.n + 2, self.options.max)
    else
      self.n = math.max(self.n - 1, 1)
    end
  end,
}
