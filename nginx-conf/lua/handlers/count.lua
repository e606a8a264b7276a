-- Log phase: counts what the player said about itself. A request is served whatever it says.
local cmcd = require("cmcd")
local shared_qoe = require("shared_qoe")

local var = ngx.var

local function read_request()
  if var.http_cmcd_object or var.http_cmcd_request or var.http_cmcd_session or var.http_cmcd_status then
    -- Not the variables: of several headers with one name they have the first.
    local all = ngx.req.get_headers()
    return cmcd.parse_headers({
      object = all["cmcd-object"],
      request = all["cmcd-request"],
      session = all["cmcd-session"],
      status = all["cmcd-status"],
    })
  elseif var.args then
    return cmcd.parse_query(var.args)
  end
end

local data, ignored = read_request()
if not data then
  return
end
for _, it in ipairs(ignored) do
  shared_qoe:total("cmcd_" .. it.reason)
  ngx.log(ngx.DEBUG, "CMCD ignored: ", it.reason, it.key ~= "" and ", key " .. it.key or "")
end
if next(data) then
  shared_qoe:record(data, { bytes = tonumber(var.bytes_sent), status = ngx.status }, ngx.now())
end
