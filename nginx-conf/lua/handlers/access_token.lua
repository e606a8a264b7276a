-- Access phase: requests without a valid token get 401, with one for another path 403.
local token = require("token")
local state = require("origin_state")
local shared_qoe = require("shared_qoe")

-- CORS preflights carry no credentials (Fetch standard, "CORS-preflight fetch").
if ngx.req.get_method() == "OPTIONS" then
  return
end
if not state.keys then
  ngx.log(ngx.ERR, "access tokens are asked for, and settings.lua names no token_keys")
  return ngx.exit(ngx.HTTP_INTERNAL_SERVER_ERROR)
end

-- In the path (relative URLs of a manifest keep it), in the header, or as an argument.
local given = ngx.var.path_token
if given == "" then
  local authorization = ngx.var.http_authorization
  given = authorization and authorization:match("^[Bb]earer +(%S+)$") or ngx.var.arg_token
end
local claims, reason = token.check(given, state.keys, ngx.var.uri, ngx.time())
if not claims then
  shared_qoe:total("token_" .. reason)
  if reason == "path" then
    return ngx.exit(ngx.HTTP_FORBIDDEN)
  end
  -- RFC 6750, Section 3.
  ngx.header["WWW-Authenticate"] = reason == "missing" and "Bearer"
    or 'Bearer error="invalid_token", error_description="' .. reason .. '"'
  return ngx.exit(ngx.HTTP_UNAUTHORIZED)
end
