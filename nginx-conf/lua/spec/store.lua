-- What nginx's shared dictionary does, as far as it is used (lua-nginx-module, ngx.shared.DICT).
local Store = {}
Store.__index = Store

function Store.new()
  return setmetatable({ values = {} }, Store)
end

function Store:get(key)
  return self.values[key]
end

function Store:set(key, value)
  self.values[key] = value
  return true
end

function Store:add(key, value)
  if self.values[key] ~= nil then
    return false, "exists"
  end
  return self:set(key, value)
end

function Store:incr(key, by, initial)
  self.values[key] = (self.values[key] or initial) + by
  return self.values[key]
end

function Store:delete(key)
  self.values[key] = nil
end

function Store:size()
  local size = 0
  for _ in pairs(self.values) do
    size = size + 1
  end
  return size
end

return Store
