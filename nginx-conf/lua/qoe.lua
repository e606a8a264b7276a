--- Counters of what players report (CMCD), for each playback session and in total.
--
-- The table is bounded: `max_sessions` of them, and a new one takes the place of the oldest. Forged
-- session identifiers can push others out of the table, but neither fill the memory nor
-- change the totals' meaning.
--
-- No I/O: `store` is a table shared by nginx's workers (ngx.shared.DICT) or any object with its
-- methods `get`, `set`, `add`, `incr` and `delete`. Each change is one of these, so that workers
-- need no lock.

local qoe = {}
local methods = {}
local class = { __index = methods }

--- Counters of a session.
qoe.COUNTERS = {
  "requests", "bytes", "errors", "media_ms", "bitrate_x_ms", "starvations", "urgent", "switches",
}
--- What it said last, or least or most.
qoe.STATES = {
  "since", "seen", "content", "format", "kind", "buffer_ms", "least_buffer_ms", "throughput_kbps",
  "bitrate_kbps", "top_bitrate_kbps", "video_kbps",
}

--- @param options.max_sessions sessions that are kept
--- @param options.max_labelled sessions with time series of their own at a time
--- @param options.timeout_s silence after which a session is not shown any longer
function qoe.new(store, options)
  return setmetatable({
    store = store,
    max_sessions = options.max_sessions,
    max_labelled = options.max_labelled,
    timeout_s = options.timeout_s,
  }, class)
end

-- CMCD's strings have no control characters: no other session's key is met.
local function key(sid, field)
  return "s\n" .. sid .. "\n" .. field
end

function methods:total(name, by)
  self.store:incr("t\n" .. name, by or 1, 0)
end

function methods:get_total(name)
  return self.store:get("t\n" .. name) or 0
end

local function forget(store, sid)
  for _, fields in ipairs({ qoe.COUNTERS, qoe.STATES }) do
    for _, field in ipairs(fields) do
      store:delete(key(sid, field))
    end
  end
end

-- Gives a session its place. incr gives each worker another number, so that no two take one place.
local function admit(self, sid, now)
  local added = self.store:add(key(sid, "since"), now)
  if not added then
    return
  end
  self:total("sessions")
  local number = self.store:incr("opened", 1, 0)
  local place = "p\n" .. (number - 1) % self.max_sessions
  local before = self.store:get(place)
  self.store:set(place, sid)
  if before and before ~= sid then
    forget(self.store, before)
    self:total("evicted")
  end
end

--- Counts one request.
-- @param data what cmcd.parse_query or cmcd.parse_headers answered
-- @param response `bytes` sent and HTTP `status`
-- @param now seconds since 1970
function methods:record(data, response, now)
  local sid = data.sid
  if not sid or sid == "" then
    self:total("without_session")
    return
  end
  admit(self, sid, now)
  local store = self.store
  local function count(field, by)
    store:incr(key(sid, field), by, 0)
    self:total(field, by)
  end
  local function state(field, value)
    if value ~= nil then
      store:set(key(sid, field), value)
    end
  end
  count("requests", 1)
  count("bytes", response.bytes)
  if response.status >= 400 then
    count("errors", 1)
  end
  if data.bs then
    count("starvations", 1)
  end
  if data.su then
    count("urgent", 1)
  end
  local is_video = data.ot == "v" or data.ot == "av"
  if is_video and data.br then
    local before = store:get(key(sid, "video_kbps"))
    if before and before ~= data.br then
      count("switches", 1)
    end
    state("video_kbps", data.br)
  end
  if is_video and data.br and data.d and response.status < 400 then
    count("media_ms", data.d)
    count("bitrate_x_ms", data.br * data.d)
  end
  local least = store:get(key(sid, "least_buffer_ms"))
  if data.bl and (not least or data.bl < least) then
    state("least_buffer_ms", data.bl)
  end
  state("seen", now)
  state("buffer_ms", data.bl)
  state("throughput_kbps", data.mtp)
  state("bitrate_kbps", data.br)
  state("top_bitrate_kbps", data.tb)
  state("content", data.cid)
  state("format", data.sf)
  state("kind", data.st)
end

--- The sessions that were heard of within `timeout_s`, the oldest first.
function methods:sessions(now)
  local list = {}
  for place = 0, self.max_sessions - 1 do
    local sid = self.store:get("p\n" .. place)
    local seen = sid and self.store:get(key(sid, "seen"))
    if seen and now - seen <= self.timeout_s then
      local session = { sid = sid }
      for _, field in ipairs(qoe.COUNTERS) do
        session[field] = self.store:get(key(sid, field)) or 0
      end
      for _, field in ipairs(qoe.STATES) do
        session[field] = self.store:get(key(sid, field))
      end
      list[#list + 1] = session
    end
  end
  table.sort(list, function(a, b)
    if a.since ~= b.since then
      return (a.since or 0) < (b.since or 0)
    end
    return a.sid < b.sid
  end)
  return list
end

--- Those of `sessions` that have time series of their own in /metrics: at most `max_labelled`, by the order
-- in which they come. A session that has ended keeps its place for `timeout_s`, so that invented sessions
-- make at most `max_labelled` new series in each such time.
function methods:labelled(sessions, now)
  local store, of = self.store, {}
  for _, session in ipairs(sessions) do
    of[session.sid] = session
  end
  local free, labelled = {}, {}
  for place = 0, self.max_labelled - 1 do
    local sid = store:get("l\n" .. place)
    if sid and of[sid] then
      store:set("u\n" .. place, now)
      labelled[#labelled + 1] = of[sid]
      of[sid] = nil
    elseif not sid or now - (store:get("u\n" .. place) or 0) > self.timeout_s then
      free[#free + 1] = place
    end
  end
  for _, session in ipairs(sessions) do
    local place = free[1]
    if not place then
      break
    end
    if of[session.sid] then
      table.remove(free, 1)
      store:set("l\n" .. place, session.sid)
      store:set("u\n" .. place, now)
      labelled[#labelled + 1] = session
    end
  end
  return labelled
end

return qoe
