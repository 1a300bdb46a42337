-- Keeps a drafted token iff it is the token plain decode draws there: the text is plain decode's,
-- bit for bit, at any temperature (above 0 the draft draws with the same numbers, so agrees often).
-- Paper    Daliri et al. 2024, "Coupling without Communication and Drafter-Invariant Speculative
--          Decoding", arXiv 2408.07978
-- Options  none
return {
  name = "exact",
  paper = "arXiv 2408.07978",
  kind = "exact",
  rule = "exact",
}
