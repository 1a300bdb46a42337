-- What the sandbox's own versions of Lua's functions answer: as the manual says, save where the
-- comments of spec/lua_table.c and spec/lua_lib.c say otherwise.
local function same(got, want, what)
  if got ~= want then
    error((what or "value") .. ": got " .. tostring(got) .. ", not " .. tostring(want), 2)
  end
end

local function list(t)
  return table.concat(t, " ")
end

local function fails(text, f, ...)
  local ok, message = pcall(f, ...)
  same(ok, false, text)
  -- no patterns here: look for the text by hand
  for i = 1, #message - #text + 1 do
    if message:sub(i, i + #text - 1) == text then return end
  end
  error("said '" .. message .. "', not '" .. text .. "'", 2)
end

-- table
local t = {}
table.insert(t, 3)
table.insert(t, 1, 1)
table.insert(t, 2, 2)
table.insert(t, 4, 4)
same(list(t), "1 2 3 4")
same(table.remove(t), 4)
same(table.remove(t, 1), 1)
same(list(t), "2 3")
same(table.remove(t, 3), nil)
same(table.remove({}), nil)
fails("position out of bounds", table.insert, t, 5, 0)
fails("position out of bounds", table.insert, t, 0, 0)
fails("position out of bounds", table.remove, t, 7)
fails("wrong number of arguments", table.insert, t)
same(list(table.move({ 1, 2, 3, 4 }, 2, 4, 1)), "2 3 4 4")
same(list(table.move({ 1, 2, 3 }, 1, 3, 2)), "1 1 2 3")
same(list(table.move({ 1, 2, 3 }, 1, 3, 1, {})), "1 2 3")
same(list(table.move({ 1, 2, 3 }, 3, 1, 9)), "1 2 3")
same(table.concat({}), "")
same(table.concat({ 1, 2.5, "x" }, ", "), "1, 2.5, x")
same(table.concat({ 1, 2, 3 }, "-", 2, 3), "2-3")
same(table.concat({ 1, 2, 3 }, "-", 3, 2), "")
fails("invalid value (at index 2)", table.concat, { 1, {}, 3 })
local p = table.pack(nil, 2, nil)
same(p.n, 3)
same(p[2], 2)
same(select("#", table.unpack({ 1, nil, 3 }, 1, 3)), 3)
same(select(2, table.unpack({ 5, 6, 7 })), 6)
same(select("#", table.unpack({}, 2, 1)), 0)

-- sort: every order of up to six values, then many with ties
local function sorted(v, less)
  table.sort(v, less)
  for i = 2, #v do
    if less then
      same(less(v[i], v[i - 1]), false, "order")
    else
      same(v[i] < v[i - 1], false, "order")
    end
  end
end
local function permute(v, n)
  if n == 1 then
    local copy = {}
    for i = 1, #v do copy[i] = v[i] end
    sorted(copy)
    return
  end
  for i = 1, n do
    v[i], v[n] = v[n], v[i]
    permute(v, n - 1)
    v[i], v[n] = v[n], v[i]
  end
end
for n = 1, 6 do
  local v = {}
  for i = 1, n do v[i] = i end
  permute(v, n)
end
for n = 0, 200, 7 do
  local v, sum = {}, 0
  for i = 1, n do
    v[i] = math.random(20)
    sum = sum + v[i]
  end
  sorted(v)
  for i = 1, n do sum = sum - v[i] end
  same(sum, 0, "what was sorted")
  sorted(v, function(a, b) return a > b end)
end
sorted({ "b", "a", "", "ab" })
fails("attempt to compare", table.sort, { 1, "x" })
fails("function expected", table.sort, { 1, 2 }, 5)
fails("inside", table.sort, { 1, 2 }, function() error("inside") end)

-- pairs: ascending keys; what is removed on the way is skipped
local keys = {}
local mixed = { b = 1, a = 2, [10] = 3, [2] = 4, [1.5] = 5, [true] = 6, [-1] = 7, [false] = 8 }
for k, v in pairs(mixed) do
  keys[#keys + 1] = tostring(k) .. "=" .. v
end
same(list(keys), "-1=7 1.5=5 2=4 10=3 a=2 b=1 false=8 true=6")
local u, seen = { a = 1, b = 2, c = 3 }, 0
for k in pairs(u) do
  u.b = nil
  seen = seen + 1
end
same(seen, 2)
same(next({}), nil)
same(pairs(setmetatable({}, { __pairs = function() return 5 end })), 5)
for _ in pairs({}) do error("empty") end
fails("table expected", pairs, 5)
local order = {}
for k in pairs({ [math.maxinteger] = 1, [math.maxinteger - 1] = 1, [2.0 ^ 62] = 1, [-0.5] = 1 }) do
  order[#order + 1] = tostring(k)
end
same(list(order), "-0.5 4611686018427387904 9223372036854775806 9223372036854775807")

-- strings
same(string.rep("ab", 3), "ababab")
same(string.rep("ab", 3, ","), "ab,ab,ab")
same(string.rep("", 1 << 62), "")
same(string.rep("", 3, "-"), "--")
same(string.rep("x", 0), "")
same(string.rep("x", -1), "")
same(("x"):rep(2), "xx")
same(("abc"):upper():lower():reverse():sub(1, 2), "cb")
same(string.format("%5.2f|%d|%s|%q", 1.234, 7, "x", "y"), " 1.23|7|x|\"y\"")
same("10" + 1, 11)
same(utf8.len("h\u{e9}"), 2)
same(tonumber("0x10"), 16)

-- random
for i = 1, 2000 do
  local a, b, c = math.random(), math.random(6), math.random(-3, 3)
  same(a >= 0 and a < 1, true)
  same(math.type(b) == "integer" and b >= 1 and b <= 6, true)
  same(c >= -3 and c <= 3, true)
end
same(math.random(5, 5), 5)
same(math.type(math.random(math.mininteger, math.maxinteger)), "integer")
fails("interval is empty", math.random, 0)
fails("interval is empty", math.random, 2, 1)
fails("no integer representation", math.random, 1.5)
fails("no, one or two bounds", math.random, 1, 2, 3)

-- pcall and error
same(select("#", pcall(function() return 1, 2, 3 end)), 4)
same(select(2, pcall(error)), nil)
local object = {}
same(select(2, pcall(error, object)), object)
fails("value expected", pcall)
same(getmetatable(""), false)
same(setmetatable(object, nil), object)
fails("nil or table expected", setmetatable, {}, 5)
fails("protected metatable", setmetatable, setmetatable({}, { __metatable = 1 }), {})

return "done"
