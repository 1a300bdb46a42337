-- The module opens no door: a script still has no files, processes, code loading or foreign tables.
local ls = require "lockstep"

for _, name in ipairs { "io", "os", "debug", "package", "load", "loadfile", "dofile",
  "collectgarbage" } do
  assert(_ENV[name] == nil, name)
end
assert(not pcall(function() ls.version = "x" end))
assert(not pcall(function() ls.stats = {} end))
assert(not pcall(function() return ls.nothing end))
assert(getmetatable(ls) == "lockstep")

local model = ls.model()
assert(getmetatable(model) == "model")
assert(not pcall(setmetatable, ls, {}))
assert(not pcall(function() model.dir = "/" end))
for _, name in ipairs { "../out", "/tmp/x", ".hidden", "a/b", "" } do
  assert(not pcall(ls.results, name), name)
end
-- errors that are caught leave the state usable, and closed handles closed
assert(not pcall(ls.engine, model, { threads = -1 }))
local engine = ls.engine(model, { context = 32 })
engine:close()
engine:close()
assert(not pcall(function() return engine.device end))
assert(tostring(engine) == "engine (closed)" and tostring(model):sub(1, 6) == "model ")
do
  local scoped <close> = ls.engine(model, { context = 32 })
end
assert(ls.clock() <= ls.clock())
