--- What is counted, as JSON and in Prometheus' text format (version 0.0.4).
--
-- No I/O and nothing of nginx; lua-cjson.

local cjson = require("cjson.safe")
local cmcd = require("cmcd")
local token = require("token")

local report = {}

local function mean_kbps(session)
  if session.media_ms > 0 then
    return session.bitrate_x_ms / session.media_ms
  end
end

local function seconds(ms)
  return ms and ms / 1000
end

--- The sessions as a JSON object. What a session never said is left out.
function report.json(qoe, now)
  local list = {}
  for index, session in ipairs(qoe:sessions(now)) do
    list[index] = {
      sid = session.sid,
      content = session.content,
      format = session.format,
      kind = session.kind,
      started = session.since,
      idle_s = now - session.seen,
      requests = session.requests,
      bytes = session.bytes,
      errors = session.errors,
      media_s = session.media_ms / 1000,
      mean_bitrate_kbps = mean_kbps(session),
      bitrate_kbps = session.bitrate_kbps,
      top_bitrate_kbps = session.top_bitrate_kbps,
      switches = session.switches,
      starvations = session.starvations,
      urgent_requests = session.urgent,
      buffer_s = seconds(session.buffer_ms),
      least_buffer_s = seconds(session.least_buffer_ms),
      throughput_kbps = session.throughput_kbps,
    }
  end
  setmetatable(list, cjson.array_mt)
  local whole = { sessions = list, opened = qoe:get_total("sessions"), evicted = qoe:get_total("evicted") }
  if #list == 0 then
    -- An empty table would be an object where the library knows no array_mt.
    local text = cjson.encode({ opened = whole.opened, evicted = whole.evicted })
    return '{"sessions":[],' .. text:sub(2)
  end
  return cjson.encode(whole)
end

local function escaped(text)
  return (text:gsub('[\\"\n]', { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }))
end

-- name, type, help, and which totals with which labels.
local TOTALS = {
  { "millrace_qoe_sessions_opened_total", "Playback sessions that were seen", "sessions" },
  { "millrace_qoe_sessions_evicted_total", "Sessions that left the table for newer ones", "evicted" },
  { "millrace_qoe_requests_total", "Requests with CMCD and a session", "requests" },
  { "millrace_qoe_bytes_total", "Bytes sent to them", "bytes" },
  { "millrace_qoe_errors_total", "Of them, answered with a status of 400 or above", "errors" },
  { "millrace_qoe_starvations_total", "Requests after a buffer had run empty (CMCD bs)", "starvations" },
  { "millrace_qoe_urgent_requests_total", "Requests for start-up, seeking or recovery (CMCD su)", "urgent" },
  { "millrace_qoe_switches_total", "Changes of the video bitrate", "switches" },
  { "millrace_cmcd_without_session_total", "Requests with CMCD without a session", "without_session" },
}

local PER_SESSION = {
  { "millrace_qoe_session_requests_total", "counter", "requests" },
  { "millrace_qoe_session_bytes_total", "counter", "bytes" },
  { "millrace_qoe_session_errors_total", "counter", "errors" },
  { "millrace_qoe_session_starvations_total", "counter", "starvations" },
  { "millrace_qoe_session_urgent_requests_total", "counter", "urgent" },
  { "millrace_qoe_session_switches_total", "counter", "switches" },
  { "millrace_qoe_session_media_seconds_total", "counter", "media_ms", 1e-3 },
  { "millrace_qoe_session_buffer_seconds", "gauge", "buffer_ms", 1e-3 },
  { "millrace_qoe_session_bitrate_bits_per_second", "gauge", "bitrate_kbps", 1e3 },
  { "millrace_qoe_session_throughput_bits_per_second", "gauge", "throughput_kbps", 1e3 },
}

--- Everything for Prometheus.
function report.prometheus(qoe, now)
  local lines = {}
  local function line(...)
    lines[#lines + 1] = table.concat({ ... })
  end
  local function number(value)
    return ("%.15g"):format(value)
  end
  local function reasons(name, help, list, prefix)
    line("# HELP ", name, " ", help)
    line("# TYPE ", name, " counter")
    for _, reason in ipairs(list) do
      line(name, '{reason="', reason, '"} ', number(qoe:get_total(prefix .. reason)))
    end
  end
  for _, total in ipairs(TOTALS) do
    line("# HELP ", total[1], " ", total[2])
    line("# TYPE ", total[1], " counter")
    line(total[1], " ", number(qoe:get_total(total[3])))
  end
  reasons("millrace_cmcd_ignored_total", "CMCD keys ignored, and whole reports (version, too_long)", cmcd.REASONS, "cmcd_")
  reasons("millrace_token_refused_total", "Requests without a valid access token", token.REASONS, "token_")
  local sessions = qoe:sessions(now)
  line("# HELP millrace_qoe_sessions Sessions heard of lately")
  line("# TYPE millrace_qoe_sessions gauge")
  line("millrace_qoe_sessions ", tostring(#sessions))
  local labelled = qoe:labelled(sessions, now)
  line("# HELP millrace_qoe_sessions_unlabelled Of them, those without time series of their own: max_labelled_sessions is reached")
  line("# TYPE millrace_qoe_sessions_unlabelled gauge")
  line("millrace_qoe_sessions_unlabelled ", tostring(#sessions - #labelled))
  for _, metric in ipairs(PER_SESSION) do
    local name, kind, field, factor = metric[1], metric[2], metric[3], metric[4] or 1
    line("# TYPE ", name, " ", kind)
    for _, session in ipairs(labelled) do
      if session[field] then
        local labels = '{sid="' .. escaped(session.sid) .. '",cid="' .. escaped(session.content or "") .. '"} '
        line(name, labels, number(session[field] * factor))
      end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return report
