local cmcd = require("cmcd")

local SID = "6e2fb550-c457-11e9-bb97-0800200c9a66"

describe("a CMCD query argument", function()
  it("is read with all types of values", function()
    local data = cmcd.parse_query(
      'bl=21300,br=3200,bs,cid="faec5fc2-ac30-11ea",d=4004,dl=18500,mtp=48100,nor="..%2F3.m4v",'
        .. 'nrr="12323-48763",ot=v,pr=1.08,rtp=15000,sf=d,sid="' .. SID .. '",st=v,su,tb=6000,v=1'
    )
    assert.same({
      bl = 21300, br = 3200, bs = true, cid = "faec5fc2-ac30-11ea", d = 4004, dl = 18500,
      mtp = 48100, nor = "..%2F3.m4v", nrr = "12323-48763", ot = "v", pr = 1.08, rtp = 15000,
      sf = "d", sid = SID, st = "v", su = true, tb = 6000, v = 1,
    }, data)
  end)

  it("may have escaped quotes, commas in strings, custom keys and false", function()
    assert.same(
      { cid = 'a"b\\c,d=1', ["com.example-key"] = "x,y", ["com.example-n"] = "5", su = false },
      cmcd.parse_query('cid="a\\"b\\\\c,d=1",com.example-key="x,y",com.example-n=5,su=?0')
    )
  end)

  it("may have unknown keys, which do not count", function()
    assert.same({ br = 1 }, cmcd.parse_query("br=1,xyz=17,BR=2"))
  end)

  local refused = {
    syntax = {
      "", ",", "br=1,", ",br=1", "br=", "=1", "br 1", 'sid="x', 'sid="a\\', "b\nr=1", 'com.example-k="',
      'sid="a"b"',
    },
    value = {
      "br", "br=1.5", "br=-1", "br=1e3", "br=x", "br=1234567890123456", "bs=1", "bs=true", "pr=1.",
      "pr=.5", "pr=NaN", "ot=x", "ot", 'ot="v"', "sf=dash", "st=V", "sid=abc", "br=1;d=2",
      'sid="a\\x"', 'sid="a\127"', 'sid="\195\164"', 'sid="' .. ("x"):rep(65) .. '"',
      "com.example-k=" .. ("x"):rep(65), "com.example-k=a b",
    },
    duplicate = { "br=1,br=1", 'sid="a",br=2,sid="b"' },
    version = { "v=2", "br=1,v=2" },
    too_long = {
      "com.example-k=" .. ("x"):rep(2048),
      ("a=1,"):rep(41) .. "br=1",
    },
  }
  for reason, list in pairs(refused) do
    for _, text in ipairs(list) do
      it("is refused for " .. reason .. ": " .. text:sub(1, 40):gsub("%c", "?"), function()
        local data, why = cmcd.parse_query(text)
        assert.same({ nil, reason }, { data, why })
      end)
    end
  end

  it("has only reasons that are counted", function()
    local known = {}
    for _, reason in ipairs(cmcd.REASONS) do
      known[reason] = true
    end
    for reason in pairs(refused) do
      assert.is_true(known[reason], reason)
    end
  end)

  it("never raises an error, whatever the bytes", function()
    math.randomseed(7)
    local alphabet = { "br", "sid", "=", ",", '"', "\\", "1", " ", "v", "-", "\0", "\255", "com.a-b", "?0" }
    for _ = 1, 20000 do
      local parts = {}
      for index = 1, math.random(0, 12) do
        parts[index] = alphabet[math.random(#alphabet)]
      end
      local data, reason = cmcd.parse_query(table.concat(parts))
      assert.is_true((data == nil) == (reason ~= nil))
    end
  end)
end)

-- What @svta/cml-cmcd 2.3.2 writes, which dash.js 5 and hls.js use.
local WRITTEN = {
  br = 3200, bl = 21300, bs = true, cid = 'faec"5\\c,x', d = 4004, dl = 18500, mtp = 48100,
  nor = "..%2F300kbps%2Ftrack.m4v", nrr = "12323-48763", ot = "v", pr = 1.08, rtp = 15000, sf = "d",
  sid = SID, st = "v", su = true, tb = 6000, ["com.example-key"] = "a b", ["com.example-n"] = "5",
  ["com.example-b"] = true,
}

describe("what players' library writes", function()
  it("is read from a query", function()
    local text = 'bl=21300,br=3200,bs,cid="faec\\"5\\\\c,x",com.example-b,com.example-key="a b",'
      .. 'com.example-n=5,d=4004,dl=18500,mtp=48100,nor="..%2F300kbps%2Ftrack.m4v",'
      .. 'nrr="12323-48763",ot=v,pr=1.08,rtp=15000,sf=d,sid="' .. SID .. '",st=v,su,tb=6000'
    assert.same(WRITTEN, cmcd.parse_query(text))
  end)

  it("is read from headers", function()
    assert.same(WRITTEN, cmcd.parse_headers({
      request = 'bl=21300,com.example-b,com.example-key="a b",com.example-n=5,dl=18500,mtp=48100,'
        .. 'nor="..%2F300kbps%2Ftrack.m4v",nrr="12323-48763",su',
      object = "br=3200,d=4004,ot=v,tb=6000",
      status = "bs,pr=1.08,rtp=15000",
      session = 'cid="faec\\"5\\\\c,x",sf=d,sid="' .. SID .. '",st=v',
    }))
  end)
end)

describe("CMCD headers", function()
  it("are read together", function()
    assert.same(
      { br = 3200, d = 4004, ot = "v", tb = 6000, bl = 21300, sid = SID, v = 1, rtp = 15000, bs = true },
      cmcd.parse_headers({
        object = "br=3200,d=4004,ot=v,tb=6000",
        request = "bl=21300",
        session = 'sid="' .. SID .. '", v=1',
        status = "bs,rtp=15000",
      })
    )
  end)

  it("may be some of the four, with custom keys in any", function()
    assert.same(
      { ot = "m", ["com.example-k"] = "1" },
      cmcd.parse_headers({ object = "ot=m", status = "com.example-k=1" })
    )
  end)

  it("are refused when a key is in another's", function()
    for header, text in pairs({ object = "bl=1", request = "br=1", session = "bs", status = 'sid="a"' }) do
      assert.same({ nil, "wrong_header" }, { cmcd.parse_headers({ [header] = text }) })
    end
  end)

  it("are refused whole when one is malformed, or two have one key", function()
    assert.same({ nil, "value" }, { cmcd.parse_headers({ object = "br=1", request = "bl=x" }) })
    assert.same(
      { nil, "duplicate" },
      { cmcd.parse_headers({ object = "com.example-k=1", status = "com.example-k=1" }) }
    )
  end)
end)
