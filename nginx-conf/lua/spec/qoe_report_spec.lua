local cjson = require("cjson")
local qoe = require("qoe")
local report = require("qoe_report")
local Store = require("spec.store")

local function counted()
  local it = qoe.new(Store.new(), { max_sessions = 4, max_labelled = 4, timeout_s = 60 })
  it:record({ sid = 'a"b\\c', cid = "film", ot = "v", br = 1000, d = 2000, bl = 4500, mtp = 9000 },
    { bytes = 1e10, status = 200 }, 10)
  it:record({ sid = 'a"b\\c', ot = "v", br = 3000, d = 2000, bs = true }, { bytes = 5, status = 200 }, 11.5)
  it:record({ sid = "second" }, { bytes = 1, status = 200 }, 12)
  it:total("cmcd_syntax")
  it:total("token_expired", 2)
  return it
end

describe("the JSON report", function()
  it("has what sessions said, and leaves out what they did not", function()
    local read = cjson.decode(report.json(counted(), 12))
    assert.same({ 2, 0 }, { read.opened, read.evicted })
    assert.same({
      sid = 'a"b\\c', content = "film", started = 10, idle_s = 0.5, requests = 2, bytes = 1e10 + 5,
      errors = 0, media_s = 4, mean_bitrate_kbps = 2000, bitrate_kbps = 3000, switches = 1,
      starvations = 1, urgent_requests = 0, buffer_s = 4.5, least_buffer_s = 4.5, throughput_kbps = 9000,
    }, read.sessions[1])
    assert.is_nil(read.sessions[2].mean_bitrate_kbps)
  end)

  it("has a list also when there is no session", function()
    local empty = qoe.new(Store.new(), { max_sessions = 4, max_labelled = 4, timeout_s = 60 })
    local text = report.json(empty, 1)
    assert.truthy(text:find('"sessions":[]', 1, true), text)
    assert.equal(0, cjson.decode(text).opened)
  end)
end)

describe("the Prometheus report", function()
  local lines = {}
  for line in report.prometheus(counted(), 12):gmatch("[^\n]+") do
    lines[line] = true
  end

  it("has totals, reasons and sessions", function()
    for _, line in ipairs({
      "millrace_qoe_sessions_opened_total 2",
      "millrace_qoe_bytes_total 10000000006",
      'millrace_cmcd_ignored_total{reason="syntax"} 1',
      'millrace_cmcd_ignored_total{reason="value"} 0',
      'millrace_token_refused_total{reason="expired"} 2',
      "millrace_qoe_sessions 2",
      "# TYPE millrace_qoe_session_buffer_seconds gauge",
      'millrace_qoe_session_buffer_seconds{sid="a\\"b\\\\c",cid="film"} 4.5',
      'millrace_qoe_session_bitrate_bits_per_second{sid="a\\"b\\\\c",cid="film"} 3000000',
      'millrace_qoe_session_requests_total{sid="second",cid=""} 1',
    }) do
      assert.is_true(lines[line], line)
    end
  end)

  it("has no line for what a session never said", function()
    assert.is_nil(lines['millrace_qoe_session_buffer_seconds{sid="second",cid=""} 0'])
  end)
end)

describe("time series", function()
  local function names(text)
    local found = {}
    for name in text:gmatch("\n(millrace_qoe_session_[^ ]*) ") do
      found[name] = true
    end
    return found
  end

  it("are bounded in number, whatever players call their sessions", function()
    local it = qoe.new(Store.new(), { max_sessions = 1000, max_labelled = 20, timeout_s = 300 })
    local all, count = {}, 0
    for scrape = 1, 4 do
      for number = 1, 1000 do
        local name = "sid-" .. scrape .. "-" .. number
        it:record({ sid = name, cid = name, ot = "v", br = 1000, d = 2000, bl = 4500, mtp = 9000 },
          { bytes = 1, status = 200 }, scrape * 15)
      end
      local text = report.prometheus(it, scrape * 15)
      assert.truthy(text:find("\nmillrace_qoe_sessions_unlabelled " .. (scrape == 1 and 980 or 1000), 1, true), text)
      for name in pairs(names(text)) do
        count = count + (all[name] and 0 or 1)
        all[name] = true
      end
    end
    assert.equal(200, count)
    assert.truthy(report.prometheus(it, 60):find("\nmillrace_qoe_requests_total 4000\n", 1, true))
  end)

  it("pass to other sessions once theirs have been silent for long", function()
    local it = qoe.new(Store.new(), { max_sessions = 10, max_labelled = 1, timeout_s = 60 })
    it:record({ sid = "a" }, { bytes = 1, status = 200 }, 1)
    it:record({ sid = "b" }, { bytes = 1, status = 200 }, 2)
    assert.truthy(report.prometheus(it, 2):find('requests_total{sid="a",cid=""} 1', 1, true))
    it:record({ sid = "b" }, { bytes = 1, status = 200 }, 65)
    assert.is_nil(report.prometheus(it, 61.5):find('sid="b"', 1, true))
    local later = report.prometheus(it, 65)
    assert.truthy(later:find('requests_total{sid="b",cid=""} 2', 1, true), later)
  end)
end)
