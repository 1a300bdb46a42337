-- decode_occupancy.lua - how many parts should one row's attention be cut into?
--
-- Question   A decode step has one row: with few key/value heads, one block a head leaves most of a
--            GPU idle. How long does the attention of one layer take when keys are split over more
--            blocks? From which length on does a split pay, and do short rows lose by it? What does
--            the second launch, the merge, cost?
-- Grid       lengths x chunk rules x cache layouts (contiguous; paged by each of block_rows) x ways
--            to launch (graph, eager) x rounds. A round goes through the whole grid, so that a drift
--            of the machine meets every cell.
-- Rules      splits:1 is the single pass, one block a key/value head; splits:N cuts any row into N;
--            even:256:64 gives chunks of 256 keys and a grid for the whole capacity, whatever the row.
-- Metrics    us a layer: median of the repeats, then of the rounds; both launches, and the chunks
--            alone. Every record has the quartiles and the coefficient of variation. Occupancy is
--            computed from the grid (blocks that find keys) and what a multiprocessor can hold.
-- Ties       a rule has to be `margin` per cent faster than one before it in the list to be the best.
-- Crossover  of a split count: the smallest length from which on it beats the single pass at every
--            length that was measured.
-- Keeps      OUT/decode_occupancy.jsonl and OUT/decode_occupancy.svg; a second run does only what is
--            missing, then reports.

local ls = require "lockstep"

local opt = ls.options {
  { "lengths", { "8", "15", "16", "17", "31", "32", "33", "64", "128", "255", "256", "257", "512",
    "1024", "2047", "2048" }, "keys of the row" },
  { "rules", { "splits:1", "even:256:64", "splits:2", "splits:4", "splits:8", "splits:16" },
    "chunk rules; the first is what the others are held against" },
  { "block_rows", { "16", "32" }, "rows of a block, of the paged layouts" },
  { "heads", 14, "query heads" },
  { "kv_heads", 2, "key/value heads" },
  { "head_dim", 64, "width of a head" },
  { "kv", "bf16", "how keys and values are stored" },
  { "capacity", 2048, "keys the grid is made for" },
  { "device", "", "cpu, cuda or cuda:N (none: that of lockstep run)" },
  { "profile", "", "ieee or mma (none: that of lockstep run)" },
  { "threads", 1, "threads of the CPU" },
  { "layers", 16, "caches walked in turn, so that none stays near" },
  { "margin", 2, "per cent: less than this is a tie" },
  { "rounds", 3, "times through the grid" },
  { "repeats", 15, "of each cell in a round" },
}

local function numbers(name)
  local out = {}
  for i, text in ipairs(opt[name]) do
    out[i] = math.tointeger(tonumber(text)) or error(name .. ": not an integer: " .. text, 0)
  end
  return out
end
local lengths, blocks = numbers "lengths", numbers "block_rows"
table.sort(lengths)
local layouts = { 0, table.unpack(blocks) }

-- What every call shares; `more` goes on top.
local function call(more)
  local t = { heads = opt.heads, kv_heads = opt.kv_heads, head_dim = opt.head_dim, kv = opt.kv,
    capacity = math.max(opt.capacity, lengths[#lengths]), layers = opt.layers, threads = opt.threads,
    repeats = opt.repeats }
  if opt.device ~= "" then t.device = opt.device end
  if opt.profile ~= "" then t.profile = opt.profile end
  for name, value in pairs(more) do t[name] = value end
  return ls.kernel.attention(t)
end

local probe = call { length = 1, rule = opt.rules[1], graph = false, repeats = 1, layers = 1 }
local has_graphs = pcall(call, { length = 1, rule = opt.rules[1], graph = true, repeats = 1,
  layers = 1 })
local modes = has_graphs and { "graph", "eager" } or { "eager" }
local on_blocks = probe.blocks ~= nil -- a CPU has none

local results = ls.results("decode_occupancy", {
  device = probe.device, profile = probe.profile, heads = opt.heads, kv_heads = opt.kv_heads,
  head_dim = opt.head_dim, kv = opt.kv, capacity = math.max(opt.capacity, lengths[#lengths]),
  layers = opt.layers, repeats = opt.repeats, threads = opt.threads,
})

---- measuring -------------------------------------------------------------------------------------

local function key_of(length, rule, block_rows, mode, part, round)
  return { length = length, rule = rule, block_rows = block_rows, mode = mode, part = part,
    round = round }
end

-- Every cell of a round, as a list: f(length, rule, block_rows, mode, part).
local cells = {}
for _, mode in ipairs(modes) do
  for _, block_rows in ipairs(layouts) do
    for _, length in ipairs(lengths) do
      for _, rule in ipairs(opt.rules) do
        cells[#cells + 1] = { length, rule, block_rows, mode, "both" }
        if block_rows == 0 then cells[#cells + 1] = { length, rule, block_rows, mode, "chunks" } end
      end
    end
  end
end

local n_done, n_all = 0, opt.rounds * #cells
for round = 1, opt.rounds do
  for i = 1, #cells do
    local c = cells[round % 2 == 1 and i or #cells + 1 - i] -- up, then down
    local key = key_of(c[1], c[2], c[3], c[4], c[5], round)
    if not results:has(key) then
      results:add(key, call { length = c[1], rule = c[2], block_rows = c[3],
        graph = c[4] == "graph", part = c[5] })
    end
    n_done = n_done + 1
    ls.progress(n_done, n_all, c[2] .. "  length " .. c[1])
  end
end

---- reading back ----------------------------------------------------------------------------------

local function median(list)
  table.sort(list)
  local n = #list
  if n == 0 then return nil end
  return (list[(n + 1) // 2] + list[n // 2 + 1]) / 2
end

-- Median over the rounds; and what the grid of the cell is.
local function us(length, rule, block_rows, mode, part)
  local list, cell = {}, nil
  for round = 1, opt.rounds do
    cell = results:get(key_of(length, rule, block_rows, mode, part or "both", round))
    list[round] = cell.us
  end
  return median(list), cell
end

-- Spread of the rounds' medians, in per cent of their median: what a difference has to exceed.
local function noise(length, rule, block_rows, mode)
  local low, high = math.huge, 0
  for round = 1, opt.rounds do
    local v = results:get(key_of(length, rule, block_rows, mode, "both", round)).us
    low, high = math.min(low, v), math.max(high, v)
  end
  return 100 * (high - low) / us(length, rule, block_rows, mode)
end

-- Rules that cut a row, that is all but the single pass.
local single, cuts = opt.rules[1], {}
for i = 2, #opt.rules do cuts[#cuts + 1] = opt.rules[i] end

---- reporting -------------------------------------------------------------------------------------

local function f2(x) return x and string.format("%.2f", x) or "-" end

print(string.format("%d heads over %d of %d, keys and values %s, capacity %d; %s (%s)\n" ..
  "%d rounds of %d repeats; microseconds a layer\n", opt.heads, opt.kv_heads, opt.head_dim, opt.kv,
  opt.capacity, probe.device, probe.profile, opt.rounds, opt.repeats))

local best_at = {} -- [mode][length] = rule
for _, mode in ipairs(modes) do
  local rows = {}
  best_at[mode] = {}
  for _, length in ipairs(lengths) do
    local row, best, best_us = { length }, nil, math.huge
    for _, rule in ipairs(opt.rules) do
      local v = us(length, rule, 0, mode)
      row[#row + 1] = f2(v)
      if v < best_us * (1 - opt.margin / 100) then best, best_us = rule, v end
    end
    row[#row + 1] = best
    row[#row + 1] = f2(us(length, single, 0, mode) / best_us)
    row[#row + 1] = string.format("%.1f %%", noise(length, best, 0, mode))
    best_at[mode][length] = best
    rows[#rows + 1] = row
  end
  local head = { "length" }
  for _, rule in ipairs(opt.rules) do head[#head + 1] = rule end
  head[#head + 1], head[#head + 2], head[#head + 3] = "best", "gain", "noise"
  ls.table { title = "By length, contiguous, " .. mode .. " (gain: over " .. single .. ")", head = head,
    rows = rows }
end

local rows = {}
for _, mode in ipairs(modes) do
  for _, rule in ipairs(cuts) do
    local from, worst, worst_at, merge = nil, 0, nil, {}
    for i = #lengths, 1, -1 do -- from the longest down: as long as it wins
      if us(lengths[i], rule, 0, mode) >= us(lengths[i], single, 0, mode) then break end
      from = lengths[i]
    end
    for _, length in ipairs(lengths) do
      local loss = us(length, rule, 0, mode) / us(length, single, 0, mode) - 1
      if loss > worst then worst, worst_at = loss, length end
      merge[#merge + 1] = us(length, rule, 0, mode) - us(length, rule, 0, mode, "chunks")
    end
    rows[#rows + 1] = { mode, rule, from or "never", worst_at and string.format("%.1f %% at %d",
      100 * worst, worst_at) or "nowhere", f2(median(merge)) }
  end
  local merge = {}
  for _, length in ipairs(lengths) do
    merge[#merge + 1] = us(length, single, 0, mode) - us(length, single, 0, mode, "chunks")
  end
  rows[#rows + 1] = { mode, single, "-", "-", f2(median(merge)) }
end
ls.table {
  title = "Against " .. single .. ": faster from which length on, the worst loss, and the merge",
  head = { "", "rule", "wins from", "worst loss", "merge us" }, rows = rows,
}

rows = {}
for _, mode in ipairs(modes) do
  for _, rule in ipairs(opt.rules) do
    local row = { mode, rule }
    for _, block_rows in ipairs(blocks) do
      local list = {}
      for i, length in ipairs(lengths) do
        list[i] = us(length, rule, block_rows, mode) / us(length, rule, 0, mode)
      end
      row[#row + 1] = median(list)
    end
    local list = {}
    for i, length in ipairs(lengths) do
      list[i] = us(length, rule, 0, mode) / us(length, rule, 0, modes[1])
    end
    row[#row + 1] = median(list)
    rows[#rows + 1] = row
  end
end
local head = { "", "rule" }
for _, block_rows in ipairs(blocks) do head[#head + 1] = "blocks of " .. block_rows end
head[#head + 1] = "over " .. modes[1]
ls.table { title = "Paged over contiguous, and ways to launch: median ratio over the lengths",
  head = head, rows = rows }

if on_blocks then
  rows = {}
  for _, rule in ipairs(opt.rules) do
    for _, length in ipairs { lengths[1], lengths[(#lengths + 1) // 2], lengths[#lengths] } do
      local _, c = us(length, rule, 0, modes[1])
      rows[#rows + 1] = { rule, length, c.blocks, c.live_blocks, c.threads,
        c.blocks_a_unit * c.units, 100 * c.occupancy }
    end
  end
  ls.table { title = "Occupancy, computed: blocks with keys, and their warps over what the device holds",
    head = { "rule", "length", "blocks", "with keys", "threads", "fit at once", "per cent" },
    rows = rows }
end

---- the summary -----------------------------------------------------------------------------------

local mode = modes[1]
local runs, first = {}, lengths[1]
for i, length in ipairs(lengths) do -- neighbouring lengths with the same best rule
  if i == #lengths or best_at[mode][lengths[i + 1]] ~= best_at[mode][length] then
    runs[#runs + 1] = string.format("%d..%d %s", first, length, best_at[mode][length])
    first = lengths[i + 1]
  end
end
print("Best rule by length (" .. mode .. "): " .. table.concat(runs, "; "))

-- The best of the rules that do cut a row of this length, over the single pass.
local function best_cut(length)
  local least = math.huge
  for _, rule in ipairs(cuts) do
    local v, cell = us(length, rule, 0, mode)
    if cell.live_chunks > 1 then least = math.min(least, v) end
  end
  return least / us(length, single, 0, mode)
end

local pays, loses, margin = nil, {}, opt.margin / 100
for i = #lengths, 1, -1 do
  if best_cut(lengths[i]) > 1 - margin then break end
  pays = lengths[i]
end
for _, length in ipairs(lengths) do
  local loss = best_cut(length) - 1
  if loss > math.max(margin, noise(length, single, 0, mode) / 100) and loss < math.huge then
    loses[#loses + 1] = string.format("%d (%.0f %%)", length, 100 * loss)
  end
end
print(pays and string.format("Crossover: some split beats %s from length %d on", single, pays)
  or "Crossover: none; no split beats " .. single .. " at the longest row")
print(#loses == 0 and "Short rows: the best split never loses to " .. single .. " by more than the noise"
  or "Short rows: even the best split loses to " .. single .. " at " .. table.concat(loses, ", "))
local merge = {}
for _, length in ipairs(lengths) do
  for _, rule in ipairs(cuts) do
    merge[#merge + 1] = us(length, rule, 0, mode) - us(length, rule, 0, mode, "chunks")
  end
end
print(string.format("Merge: the second launch costs %s us a layer (median over lengths and splits)",
  f2(median(merge))))

---- the plot --------------------------------------------------------------------------------------

local W, H, LEFT, RIGHT, TOP, BOTTOM = 760, 440, 60, 130, 30, 45
local COLORS = { "#000000", "#888888", "#1f77b4", "#2ca02c", "#ff7f0e", "#d62728", "#9467bd", "#8c564b" }

local low, high = math.huge, 0
for _, length in ipairs(lengths) do
  for _, rule in ipairs(opt.rules) do
    local v = us(length, rule, 0, mode)
    low, high = math.min(low, v), math.max(high, v)
  end
end
low, high = low * 0.9, high * 1.1

local function log2(x) return math.log(x, 2) end
local span = math.max(log2(lengths[#lengths]) - log2(lengths[1]), 1)
local function px(length)
  return LEFT + (W - LEFT - RIGHT) * (log2(length) - log2(lengths[1])) / span
end
local function py(v) return TOP + (H - TOP - BOTTOM) * (log2(high) - log2(v)) / (log2(high) - log2(low)) end

local svg = {}
local function put(...) svg[#svg + 1] = string.format(...) end
local function text(x, y, anchor, s)
  put('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>', x, y, anchor,
    (s:gsub("&", "&amp;"):gsub("<", "&lt;")))
end
put('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" ' ..
  'font-family="sans-serif" font-size="12">', W, H, W, H)
put('<rect width="%d" height="%d" fill="#ffffff"/>', W, H)
text(LEFT, 18, "start", string.format("Attention of one row, us a layer: %d heads over %d of %d, %s; %s",
  opt.heads, opt.kv_heads, opt.head_dim, mode, probe.device))
for e = math.ceil(log2(low)), math.floor(log2(high)) do
  local y = py(2 ^ e)
  put('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>', LEFT, W - RIGHT, y, y)
  text(LEFT - 6, y + 4, "end", string.format("%g", 2 ^ e))
end
for e = math.ceil(log2(lengths[1])), math.floor(log2(lengths[#lengths])) do
  local x = px(2 ^ e)
  put('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#eeeeee"/>', x, x, TOP, H - BOTTOM)
  text(x, H - BOTTOM + 16, "middle", tostring(1 << e))
end
text((LEFT + W - RIGHT) / 2, H - 8, "middle", "keys of the row")
for k, rule in ipairs(opt.rules) do
  local color, points = COLORS[(k - 1) % #COLORS + 1], {}
  for i, length in ipairs(lengths) do
    points[i] = string.format("%.1f,%.1f", px(length), py(us(length, rule, 0, mode)))
  end
  put('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>', color,
    table.concat(points, " "))
  put('<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="2"/>', W - RIGHT + 10,
    W - RIGHT + 30, TOP + 18 * k, TOP + 18 * k, color)
  text(W - RIGHT + 36, TOP + 18 * k + 4, "start", rule)
end
put "</svg>"
print("results: " .. results.path)
print("plot: " .. ls.figure("decode_occupancy", table.concat(svg, "\n") .. "\n"))
