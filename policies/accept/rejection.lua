-- Keeps a drafted token with probability min(1, p_target / p_draft), else draws from what is left
-- of the target's distribution: another text than plain decode's, from the same distribution.
-- Papers   Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318
-- Options  none
return {
  name = "rejection",
  paper = "arXiv 2211.17192, 2302.01318",
  kind = "lossless",
  rule = "rejection",
}
