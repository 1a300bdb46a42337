-- A policy that means harm: lengths at random, 0 and far too large among them, drafts cut anywhere.
-- Options  none
-- State    none; its numbers come from ctx.rng, so a run with the same seed repeats
return {
  name = "hostile",

  plan = function(self, ctx)
    local kind = ctx.rng(8)
    if kind == 1 then return 0 end
    if kind == 2 then return math.maxinteger end
    if kind == 3 then return 2.0 ^ 80 end
    if kind == 4 then return ctx.room + 1 end
    if kind == 5 then return ctx.room end
    return ctx.rng(0, 16)
  end,

  more = function(self, ctx, step)
    return ctx.rng() < 0.8
  end,

  observe = function(self, ctx, round)
    self.wasted = (self.wasted or 0) + round.proposed - round.accepted
  end,
}
