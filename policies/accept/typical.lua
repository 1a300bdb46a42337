-- Keeps a drafted token that is typical of the target: probable enough for how undecided that is.
-- Paper    Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple
--          Decoding Heads", arXiv 2401.10774
-- Options  epsilon  probability that is always enough, 0 to 1
--          delta    factor of exp(-entropy), 0 to 1; the smaller of the two is asked for
-- State    none
-- Lossy    The text is neither plain decode's nor from the target's distribution. A refused token
--          is replaced by the target's own draw, so every round moves on by at least one token.
return {
  name = "typical",
  paper = "arXiv 2401.10774",
  kind = "lossy",
  options = { epsilon = 0.09, delta = 0.3 },
  ranges = { epsilon = { 0, 1 }, delta = { 0, 1 } },

  judge = function(self, row)
    local enough = math.min(self.options.epsilon, self.options.delta * math.exp(-row.entropy))
    return row.p_target > enough
  end,
}
