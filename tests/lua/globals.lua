-- Lists everything a script can reach, one path a line, sorted: compared with globals.txt.
local lines, seen = {}, {}

local function walk(path, value)
  lines[#lines + 1] = path .. " " .. type(value)
  local mt = getmetatable(value)
  if mt then
    walk(path .. "<metatable>", mt)
  end
  if type(value) == "table" and not seen[value] then
    seen[value] = true
    for k, v in pairs(value) do
      walk(path .. "." .. tostring(k), v)
    end
  end
end

walk("_ENV", _ENV)
walk("''", "")
return table.concat(lines, "\n") .. "\n"
