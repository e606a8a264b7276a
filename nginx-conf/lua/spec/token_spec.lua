local token = require("token")

-- RFC 7515, Appendix A.1.
local RFC_TOKEN = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
  .. "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
  .. "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
local RFC_KEY = "0323354b2b0fa5bc837e0665777ba68f5ab328e6f054c928a90f84b2d2502ebf"
  .. "d3fb5a92d20647ef968ab4c377623d223d2e2172052e4f08c0cd9af567d080a3"
local RFC_EXPIRY = 1300819380

local KEY = ("0123456789abcdef"):rep(4)
local NOW = 1700000000

local function run(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

local function base64url(text)
  local name = os.tmpname()
  local file = assert(io.open(name, "wb"))
  file:write(text)
  file:close()
  local out = run("openssl base64 -A -in " .. name):gsub("+", "-"):gsub("/", "_"):gsub("=", "")
  os.remove(name)
  return out
end

-- Signed by the openssl program, and not by what is tested.
local function sign(header, claims, hex_key)
  local text = base64url(header) .. "." .. base64url(claims)
  local signature = run(
    "printf %s '" .. text .. "' | openssl dgst -sha256 -mac HMAC -macopt hexkey:" .. hex_key
      .. " -binary | openssl base64 -A"
  )
  return text .. "." .. signature:gsub("+", "-"):gsub("/", "_"):gsub("=", "")
end

local function keys(text)
  return assert(token.read_keys(text))
end

local function check(header, claims, options)
  options = options or {}
  return token.check(
    sign(header, claims, options.key or KEY),
    options.keys or keys(KEY),
    options.path or "/private/film/manifest.mpd",
    options.now or NOW
  )
end

local HEADER = '{"alg":"HS256","typ":"JWT"}'

describe("an access token", function()
  it("is that of the standard, until it expires", function()
    local rfc = keys(RFC_KEY)
    assert.equal("joe", assert(token.check(RFC_TOKEN, rfc, "/", RFC_EXPIRY - 1)).iss)
    assert.truthy(token.check(RFC_TOKEN, rfc, "/", RFC_EXPIRY + token.LEEWAY_S - 1))
    assert.same({ nil, "expired" }, { token.check(RFC_TOKEN, rfc, "/", RFC_EXPIRY + token.LEEWAY_S) })
  end)

  it("is refused with any one character changed", function()
    local rfc = keys(RFC_KEY)
    for at = 1, #RFC_TOKEN - 1 do
      local other = RFC_TOKEN:sub(at, at) == "A" and "B" or "A"
      local changed = RFC_TOKEN:sub(1, at - 1) .. other .. RFC_TOKEN:sub(at + 1)
      assert.is_nil((token.check(changed, rfc, "/", RFC_EXPIRY - 1)), changed)
    end
  end)

  it("opens its path only", function()
    local function reason(path, claimed)
      local claims, why = check(HEADER, '{"exp":1700000100,"path":"' .. claimed .. '"}', { path = path })
      return claims and "opens" or why
    end
    assert.equal("opens", reason("/private/film/1.m4s", "/private/film"))
    assert.equal("opens", reason("/private/film/1.m4s", "/private/film/"))
    assert.equal("opens", reason("/private/film", "/private/film"))
    assert.equal("opens", reason("/private/film", "/"))
    assert.equal("path", reason("/private/film2/1.m4s", "/private/film"))
    assert.equal("path", reason("/private/", "/private/film"))
  end)

  it("is refused for what it lacks or has wrong", function()
    for _, case in ipairs({
      { HEADER, '{"path":"/"}', "malformed" },
      { HEADER, '{"exp":"1700000100"}', "malformed" },
      { HEADER, '{"exp":-1}', "malformed" },
      { HEADER, '{"exp":1e300}', "malformed" },
      { HEADER, '{"exp":1700000100,"nbf":"x"}', "malformed" },
      { HEADER, '{"exp":1700000100,"path":7}', "malformed" },
      { HEADER, '{"exp":1700000100,"path":"private"}', "malformed" },
      { HEADER, "[1]", "malformed" },
      { HEADER, "{", "malformed" },
      { "{", '{"exp":1700000100}', "malformed" },
      { '"x"', '{"exp":1700000100}', "malformed" },
      { HEADER, '{"exp":1700000100,"nbf":1700000050}', "not_yet" },
      { HEADER, '{"exp":1600000000}', "expired" },
      { '{"alg":"none"}', '{"exp":1700000100}', "algorithm" },
      { '{"alg":"HS512"}', '{"exp":1700000100}', "algorithm" },
      { '{"alg":"hs256"}', '{"exp":1700000100}', "algorithm" },
      { '{"typ":"JWT"}', '{"exp":1700000100}', "algorithm" },
      { '{"alg":"HS256","crit":["b64"],"b64":false}', '{"exp":1700000100}', "algorithm" },
      { '{"alg":"HS256","kid":"2"}', '{"exp":1700000100}', "unknown_key" },
      { '{"alg":"HS256","kid":7}', '{"exp":1700000100}', "unknown_key" },
    }) do
      local claims, reason = check(case[1], case[2])
      assert.same({ nil, case[3] }, { claims, reason }, case[1] .. case[2])
    end
    local _, reason = check(HEADER, '{"exp":1700000100}', { key = ("f"):rep(64) })
    assert.equal("signature", reason)
  end)

  it("is refused when it is not a token", function()
    for text, reason in pairs({
      [""] = "missing", a = "malformed", ["a.b"] = "malformed", ["a.b.c.d"] = "malformed",
      ["..."] = "malformed", ["a b.c.d"] = "malformed", [("a"):rep(3000)] = "malformed",
      [RFC_TOKEN .. "="] = "malformed", [RFC_TOKEN:match("^(.*%.)")] = "malformed",
    }) do
      assert.same({ nil, reason }, { token.check(text, keys(KEY), "/", NOW) }, text)
    end
    assert.same({ nil, "missing" }, { token.check(nil, keys(KEY), "/", NOW) })
  end)

  it("is checked with the key that it names", function()
    local both = keys("2025 " .. KEY .. "\n2026 " .. ("f"):rep(64))
    local function reason(kid, key)
      local claims, why = check('{"alg":"HS256","kid":"' .. kid .. '"}', '{"exp":1700000100}', { key = key, keys = both })
      return claims and "opens" or why
    end
    assert.equal("opens", reason("2025", KEY))
    assert.equal("opens", reason("2026", ("f"):rep(64)))
    assert.equal("signature", reason("2026", KEY))
    local _, none = check(HEADER, '{"exp":1700000100}', { keys = both })
    assert.equal("unknown_key", none)
  end)
end)

describe("a file of keys", function()
  it("may have comments and empty lines", function()
    local read = keys("# of 2025\r\n\r\na " .. KEY .. "\n  " .. RFC_KEY .. "  \n")
    assert.equal(32, #read.a)
    assert.equal(64, #read[""])
  end)

  it("is refused with the line that is wrong", function()
    for text, word in pairs({
      [""] = "no key", ["# only a comment"] = "no key", ["abc"] = "line 1", ["a b c"] = "line 1",
      ["\na 00ff"] = "line 2: the key has fewer than 32 bytes", ["a " .. KEY .. "\na " .. KEY] = "second key",
      ["a " .. KEY .. "0"] = "line 1",
    }) do
      local read, problem = token.read_keys(text)
      assert.is_nil(read)
      assert.truthy(problem:find(word, 1, true), problem)
    end
  end)
end)
