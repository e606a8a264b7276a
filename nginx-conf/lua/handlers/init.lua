-- Run once before the workers start: reads settings and keys, so that a bad file keeps nginx from
-- starting, and from taking a reload, instead of refusing every viewer. `nginx -t` does not run it.
local token = require("token")
local settings = require("settings")

local edge = { settings = settings }

if settings.token_keys then
  local file, problem = io.open(settings.token_keys)
  assert(file, problem and ("token_keys: " .. problem))
  local keys, wrong = token.read_keys(file:read("*a"))
  file:close()
  assert(keys, wrong and (settings.token_keys .. ", " .. wrong))
  edge.keys = keys
end

package.loaded["origin_state"] = edge
