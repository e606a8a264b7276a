-- Log phase: counts what the player said about itself. A request is served whatever it says.
local cmcd = require("cmcd")
local shared_qoe = require("shared_qoe")

local var = ngx.var
local headers = {
  object = var.http_cmcd_object,
  request = var.http_cmcd_request,
  session = var.http_cmcd_session,
  status = var.http_cmcd_status,
}
local data, reason
if next(headers) then
  data, reason = cmcd.parse_headers(headers)
elseif var.arg_CMCD then
  -- At most as many bytes as three for each of those that are looked at.
  local raw = var.arg_CMCD
  if #raw > 3 * cmcd.MAX_BYTES then
    reason = "too_long"
  else
    data, reason = cmcd.parse_query(ngx.unescape_uri(raw))
  end
else
  return
end
if data then
  shared_qoe:record(data, { bytes = tonumber(var.bytes_sent), status = ngx.status }, ngx.now())
else
  shared_qoe:total("cmcd_" .. reason)
end
