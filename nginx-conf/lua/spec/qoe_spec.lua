local qoe = require("qoe")
local Store = require("spec.store")

local OK = { bytes = 1000, status = 200 }

local function table_of(most)
  local store = Store.new()
  return qoe.new(store, { max_sessions = most or 4, max_labelled = 4, timeout_s = 60 }), store
end

describe("a session", function()
  it("adds up what its player reports", function()
    local counted = table_of()
    counted:record({ sid = "a", ot = "m", su = true, cid = "film", sf = "d", st = "v" }, OK, 10)
    counted:record({ sid = "a", ot = "v", br = 1000, d = 2000, bl = 4000, mtp = 9000, tb = 3000 }, OK, 11)
    counted:record({ sid = "a", ot = "a", br = 128, d = 2000, bl = 3000 }, OK, 12)
    counted:record({ sid = "a", ot = "v", br = 3000, d = 2000, bl = 6000, bs = true }, OK, 13)
    counted:record({ sid = "a", ot = "v", br = 3000, d = 2000, bl = 5000 }, { bytes = 10, status = 404 }, 14)
    assert.same({
      {
        sid = "a", since = 10, seen = 14, content = "film", format = "d", kind = "v",
        requests = 5, bytes = 4010, errors = 1, urgent = 1, starvations = 1, switches = 1,
        media_ms = 4000, bitrate_x_ms = 8000000,
        buffer_ms = 5000, least_buffer_ms = 3000, throughput_kbps = 9000,
        bitrate_kbps = 3000, video_kbps = 3000, top_bitrate_kbps = 3000,
      },
    }, counted:sessions(14))
  end)

  it("is shown until it has been silent for long", function()
    local counted = table_of()
    counted:record({ sid = "a" }, OK, 100)
    assert.equal(1, #counted:sessions(160))
    assert.equal(0, #counted:sessions(161))
    counted:record({ sid = "a" }, OK, 200)
    assert.equal(2, counted:sessions(200)[1].requests)
  end)

  it("must have an identifier", function()
    local counted = table_of()
    counted:record({ br = 5 }, OK, 1)
    counted:record({ sid = "" }, OK, 1)
    assert.equal(2, counted:get_total("without_session"))
    assert.same({}, counted:sessions(1))
  end)
end)

describe("the table", function()
  it("keeps the newest sessions and forgets all of the others", function()
    local counted, store = table_of(4)
    for number = 1, 1000 do
      local sid = "session-" .. number
      for _ = 1, 3 do
        counted:record({ sid = sid, ot = "v", br = number, d = 1, bl = 1, bs = true, su = true, mtp = 1,
          tb = 1, cid = "c", sf = "d", st = "v" }, OK, number)
      end
    end
    local sids = {}
    for index, session in ipairs(counted:sessions(1000)) do
      sids[index] = session.sid
      assert.equal(3, session.requests)
    end
    assert.same({ "session-997", "session-998", "session-999", "session-1000" }, sids)
    assert.equal(996, counted:get_total("evicted"))
    assert.equal(1000, counted:get_total("sessions"))
    assert.equal(3000, counted:get_total("requests"))
    local most = 4 * (#qoe.COUNTERS + #qoe.STATES + 1) + #qoe.COUNTERS + 4
    assert.is_true(store:size() <= most, store:size() .. " keys")
  end)

  it("takes one back that it had forgotten, as a new one", function()
    local counted = table_of(1)
    counted:record({ sid = "a" }, OK, 1)
    counted:record({ sid = "b" }, OK, 2)
    counted:record({ sid = "a" }, OK, 3)
    local sessions = counted:sessions(3)
    assert.same({ "a", 1, 3 }, { sessions[1].sid, sessions[1].requests, sessions[1].since })
    assert.equal(1, #sessions)
  end)
end)
