-- Always drafts the same number of tokens: the baseline every other policy is compared with.
-- Paper    Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding",
--          arXiv 2211.17192
-- Options  n  tokens a round, 0 to 64 (0 = plain decode through the same rounds)
-- State    none
return {
  name = "fixed",
  paper = "arXiv 2211.17192",
  options = { n = 4 },
  ranges = { n = { 0, 64 } },

  plan = function(self, ctx)
    return self.options.n
  end,
}
