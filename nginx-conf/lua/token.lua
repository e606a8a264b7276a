--- Signed access tokens with an expiry: JSON Web Tokens (RFC 7519) signed with HMAC-SHA256 ("HS256",
-- RFC 7518, Section 3.2), which every language has a library for. Nothing else is accepted: no other
-- algorithm, no token without `exp`.
--
-- Claims that count: `exp` (needed) and `nbf`, in seconds since 1970; `path`, a prefix that the
-- request's path must have; `kid` of the header, which of the keys signed it. Others are ignored.
--
-- No I/O and nothing of nginx; OpenSSL through LuaJIT's FFI, and lua-cjson.

local cjson = require("cjson.safe")
local ffi = require("ffi")

ffi.cdef([[
const void *EVP_sha256(void);
unsigned char *HMAC(const void *md, const void *key, int key_bytes, const unsigned char *data,
                    size_t data_bytes, unsigned char *out, unsigned int *out_bytes);
int CRYPTO_memcmp(const void *a, const void *b, size_t bytes);
int EVP_DecodeBlock(unsigned char *out, const unsigned char *text, int text_bytes);
]])
local crypto = ffi.load("libcrypto.so.3")

local token = {}

--- Longest token in bytes.
token.MAX_BYTES = 2048
--- Shortest key in bytes: as long as the hash (RFC 7518, Section 3.2).
token.MIN_KEY_BYTES = 32
--- Largest clock difference between signer and verifier, in seconds.
token.LEEWAY_S = 5

--- Why a token was refused. For metrics, so that there are few.
token.REASONS = {
  "missing", "malformed", "algorithm", "unknown_key", "signature", "expired", "not_yet", "path",
}

local function hmac_sha256(key, data)
  local out, bytes = ffi.new("unsigned char[64]"), ffi.new("unsigned int[1]")
  assert(crypto.HMAC(crypto.EVP_sha256(), key, #key, data, #data, out, bytes) ~= nil)
  return ffi.string(out, bytes[0])
end

-- base64url without padding (RFC 7515, Section 2).
local function decode(text)
  if #text % 4 == 1 or text:find("[^%w%-_]") then
    return nil
  end
  local padding = -#text % 4
  local base64 = text:gsub("%-", "+"):gsub("_", "/") .. ("="):rep(padding)
  local out = ffi.new("unsigned char[?]", #base64)
  local bytes = crypto.EVP_DecodeBlock(out, base64, #base64)
  if bytes < 0 then
    return nil
  end
  -- OpenSSL counts the padding as zero bytes.
  return ffi.string(out, bytes - padding)
end

local function object(text)
  local bytes = decode(text)
  local value = bytes and cjson.decode(bytes)
  return type(value) == "table" and value or nil
end

local function time(value)
  -- Not NaN and not beyond what a double counts exactly.
  return type(value) == "number" and value >= 0 and value < 2 ^ 53 and value or nil
end

-- A prefix ends where a path segment does: /live does not open /live2. What a server would read as
-- another path, nginx has resolved by now.
local function has_prefix(path, prefix)
  if path:sub(1, #prefix) ~= prefix then
    return false
  end
  return prefix:sub(-1) == "/" or #path == #prefix or path:sub(#prefix + 1, #prefix + 1) == "/"
end

--- Checks a token for a request.
-- @param text the token
-- @param keys keys by their identifier; `keys[""]`, if there, is for tokens without `kid`
-- @param path the request's path, normalised
-- @param now seconds since 1970
-- @return the claims, or nil and one of token.REASONS
function token.check(text, keys, path, now)
  if not text or text == "" then
    return nil, "missing"
  end
  if #text > token.MAX_BYTES then
    return nil, "malformed"
  end
  local head, body, signature = text:match("^([%w%-_]+)%.([%w%-_]+)%.([%w%-_]+)$")
  local header = head and object(head)
  local signed = signature and decode(signature)
  if not header or not signed then
    return nil, "malformed"
  end
  -- `crit` names extensions that must be understood (RFC 7515, Section 4.1.11); none are.
  if header.alg ~= "HS256" or header.crit ~= nil then
    return nil, "algorithm"
  end
  local kid = header.kid == nil and "" or header.kid
  local key = type(kid) == "string" and keys[kid]
  if not key then
    return nil, "unknown_key"
  end
  local expected = hmac_sha256(key, head .. "." .. body)
  -- In a time that does not tell how many bytes are right.
  if #signed ~= #expected or crypto.CRYPTO_memcmp(signed, expected, #expected) ~= 0 then
    return nil, "signature"
  end
  local claims = object(body)
  local expiry = claims and time(claims.exp)
  if not expiry or (claims.nbf ~= nil and not time(claims.nbf)) then
    return nil, "malformed"
  end
  if claims.path ~= nil and (type(claims.path) ~= "string" or claims.path:sub(1, 1) ~= "/") then
    return nil, "malformed"
  end
  if now >= expiry + token.LEEWAY_S then
    return nil, "expired"
  end
  if claims.nbf and now < claims.nbf - token.LEEWAY_S then
    return nil, "not_yet"
  end
  if claims.path and not has_prefix(path, claims.path) then
    return nil, "path"
  end
  return claims
end

--- Reads keys: one a line, `identifier hexadecimal-key`, or only the key for tokens without `kid`;
-- empty lines and lines that begin with # do not count.
-- @return keys by identifier, or nil and what is wrong, with its line
function token.read_keys(text)
  local keys, number = {}, 0
  for line in (text .. "\n"):gmatch("(.-)\r?\n") do
    number = number + 1
    if not line:find("^%s*$") and not line:find("^%s*#") then
      local kid, hex = line:match("^%s*(%S+)%s+(%x+)%s*$")
      if not kid then
        kid, hex = "", line:match("^%s*(%x+)%s*$")
      end
      if not hex or #hex % 2 == 1 then
        return nil, "line " .. number .. ': expected "identifier hexadecimal-key"'
      end
      if #hex < 2 * token.MIN_KEY_BYTES then
        return nil, "line " .. number .. ": the key has fewer than " .. token.MIN_KEY_BYTES .. " bytes"
      end
      if keys[kid] then
        return nil, "line " .. number .. ": a second key of the same identifier"
      end
      keys[kid] = hex:gsub("%x%x", function(byte)
        return string.char(tonumber(byte, 16))
      end)
    end
  end
  if not next(keys) then
    return nil, "there is no key; openssl rand -hex 32 makes one"
  end
  return keys
end

return token
