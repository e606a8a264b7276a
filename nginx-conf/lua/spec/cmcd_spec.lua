local cjson = require("cjson")
local cmcd = require("cmcd")

local function cases()
  local file = assert(io.open("../../tests/data/cmcd.json"))
  local list = cjson.decode(file:read("*a"))
  file:close()
  return list
end

-- What the server reads too, and what only this end uses: names of the cases, by key.
local REPORT = {
  bl = "buffer_ms", br = "bitrate_kbps", tb = "top_bitrate_kbps", mtp = "throughput_kbps",
  rtp = "requested_kbps", bs = "starved", su = "urgent", sid = "session",
}
local ORIGIN = { cid = "content", d = "duration_ms", ot = "object_type", sf = "format", st = "kind" }

local function named(data, names)
  local found = {}
  for key, name in pairs(names) do
    found[name] = data[key] or nil
  end
  return found
end

-- The headers as nginx has them: a value, or a list of values.
local function headers_of(case)
  local fields = case.fields or {}
  if case.pad_bytes then
    fields[#fields + 1] = { "CMCD-Request", "x=" .. ("a"):rep(case.pad_bytes - 2) }
  end
  local headers = {}
  for _, field in ipairs(fields) do
    local name = field[1]:lower():match("^cmcd%-(%l+)$")
    if name then
      -- nginx takes off spaces around a value; the server's parser as well.
      local value = field[2]:match("^%s*(.-)%s*$")
      local before = headers[name]
      headers[name] = before and { before, value } or value
    end
  end
  return headers
end

local function parse(case)
  local headers = headers_of(case)
  if next(headers) then
    return cmcd.parse_headers(headers)
  end
  return cmcd.parse_query((case.target or "/"):match("%?(.*)") or "")
end

describe("cases of both ends:", function()
  for _, case in ipairs(cases()) do
    it(case.name, function()
      local data, ignored = parse(case)
      data, ignored = data or {}, ignored or {}
      assert.same(case.report or {}, named(data, REPORT))
      assert.same(case.origin or {}, named(data, ORIGIN))
      local reasons = {}
      for index, it in ipairs(ignored) do
        reasons[index] = it.key .. " " .. it.reason
      end
      assert.same(case.ignored or {}, reasons)
    end)
  end
end)

describe("what is ignored", function()
  it("has only reasons that are counted", function()
    local known = {}
    for _, reason in ipairs(cmcd.REASONS) do
      known[reason] = true
    end
    local seen = {}
    for _, case in ipairs(cases()) do
      for _, text in ipairs(case.ignored or {}) do
        local reason = text:match(" ([%w_]+)$")
        assert.is_true(known[reason], text)
        seen[reason] = true
      end
    end
    assert.same(known, seen)
  end)
end)

describe("data of any bytes", function()
  it("never raises an error, and a known key after it is read", function()
    math.randomseed(7)
    local alphabet = {
      "br", "sid", "cid", "=", ",", '"', "\\", "1", " ", "(", ")", ";", "v", "-", ".", "?0", ":", "\0", "\195\164", "\226",
      "\255", "com.a-b", "\t",
    }
    for _ = 1, 20000 do
      local parts = {}
      for index = 1, math.random(0, 12) do
        parts[index] = alphabet[math.random(#alphabet)]
      end
      local text = table.concat(parts)
      local data, ignored = cmcd.parse_headers({ object = text, status = "mtp=5" })
      assert.equal(5, data.mtp, text)
      assert.is_true(#ignored <= 2 * cmcd.MAX_KEYS)
    end
  end)
end)

-- What @svta/cml-cmcd 2.3.2 writes, which dash.js 5 and hls.js use.
local SID = "6e2fb550-c457-11e9-bb97-0800200c9a66"
local WRITTEN = {
  br = 3200, bl = 21300, bs = true, cid = 'faec"5\\c,x', d = 4004, mtp = 48100, ot = "v", sf = "d",
  rtp = 15000, sid = SID, st = "v", su = true, tb = 6000,
}

describe("what players' library writes", function()
  it("is read from a query", function()
    local text = 'bl=21300,br=3200,bs,cid="faec\\"5\\\\c,x",com.example-b,com.example-key="a b",'
      .. 'com.example-n=5,d=4004,dl=18500,mtp=48100,nor="..%2F300kbps%2Ftrack.m4v",'
      .. 'nrr="12323-48763",ot=v,pr=1.08,rtp=15000,sf=d,sid="' .. SID .. '",st=v,su,tb=6000'
    local encoded = text:gsub("[^%w]", function(c)
      return ("%%%02X"):format(c:byte())
    end)
    assert.same({ WRITTEN, {} }, { cmcd.parse_query("t=1&CMCD=" .. encoded) })
  end)

  it("is read from headers", function()
    assert.same({ WRITTEN, {} }, { cmcd.parse_headers({
      request = 'bl=21300,com.example-b,com.example-key="a b",com.example-n=5,dl=18500,mtp=48100,'
        .. 'nor="..%2F300kbps%2Ftrack.m4v",nrr="12323-48763",su',
      object = "br=3200,d=4004,ot=v,tb=6000",
      status = "bs,pr=1.08,rtp=15000",
      session = 'cid="faec\\"5\\\\c,x",sf=d,sid="' .. SID .. '",st=v',
    }) })
  end)
end)
