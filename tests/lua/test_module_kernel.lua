-- ls.kernel and ls.figure: what they give on a device without blocks and graphs.
local ls = require "lockstep"

local a = ls.kernel.attention { heads = 14, kv_heads = 2, head_dim = 64, length = 100, rows = 2,
  rule = "splits:4", capacity = 512, block_rows = 16, kv = "bf16", layers = 3, repeats = 5, seed = 9 }
assert(a.us > 0 and a.q25 <= a.us and a.us <= a.q75 and a.cv >= 0 and a.wall_us > 0)
assert(a.repeats == 5 and a.profile == "ieee" and #a.device > 0)
assert(a.bytes == 2 * 101 * 2 * 64 * 2) -- keys and values of the longer row
assert(math.abs(a.gbps - a.bytes / a.us / 1e3) < 1e-9 * a.gbps)
assert(a.live_chunks == 4 and a.max_chunks == 4)
for _, name in ipairs { "blocks", "threads", "blocks_a_unit", "units", "live_blocks", "occupancy" } do
  assert(a[name] == nil, name)
end
local even = ls.kernel.attention { length = 64, rule = "even:32:64", capacity = 1024, repeats = 1 }
assert(even.live_chunks == 2 and even.max_chunks == 32)
local merge = ls.kernel.attention { length = 64, part = "merge", graph = false, repeats = 1 }
assert(merge.us > 0 and merge.bytes == nil and merge.gbps == nil)
local f32 = ls.kernel.attention { length = 64, kv = "f32", part = "chunks", repeats = 1 }
assert(f32.bytes == 2 * 64 * 8 * 128 * 4)

local r = ls.kernel.read { bytes = 1 << 20, repeats = 3 }
assert(r.bytes == 1 << 20 and r.gbps > 0 and r.us > 0)
assert(ls.kernel.read({ bytes = 100, repeats = 1 }).bytes == 64)

local function says(words, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok and tostring(message):find(words, 1, true), tostring(message))
end
local attention, read = ls.kernel.attention, ls.kernel.read
says("takes a table of named fields", attention)
says("no field 'lenght'; it takes device, profile", attention, { lenght = 3 })
says("'length' must be an integer from 1", attention, { length = 0 })
says("'rule' is 'odd:1'", attention, { rule = "odd:1" })
says("'kv' must be \"f32\" or \"bf16\"", attention, { kv = "f16" })
says("'part' must be \"both\" or \"chunks\" or \"merge\"", attention, { part = "all" })
says("3 heads over 8", attention, { heads = 3 })
says("head_dim 7: even", attention, { head_dim = 7 })
says("a capacity of 50 keys: 2 rows from 100 on need 101", attention,
  { length = 100, rows = 2, capacity = 50 })
says("has no graphs", attention, { graph = true })
says("it must be cpu, cuda or cuda:N", attention, { device = "gpu" })
says("profile ieee only", attention, { profile = "mma" })
says("'bytes' must be an integer", read, { bytes = 1 })
says("there is no ls.kernels", function() return ls.kernels end)

local svg = '<svg xmlns="http://www.w3.org/2000/svg"></svg>\n'
assert(ls.figure("fig_1", svg):find("fig_1.svg", 1, true))
ls.figure("fig_1", svg) -- again: takes its place
says("takes a name and the text", ls.figure, "x")
says("takes a name and the text", ls.figure, 1, svg)
says("is no name", ls.figure, "../x", svg)
says("is no name", ls.figure, "", svg)
says("must begin with <svg", ls.figure, "x", "hello")
