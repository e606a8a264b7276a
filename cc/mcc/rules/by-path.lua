-- By what the path is like. Satellite: nothing but Iris fills it soon after loss. Losses without a queue are
-- chance, as on Wi-Fi: whoever takes them for congestion starves. LTE: a queue that is deep and one's own.

-- Smallest round trip from which on a path goes by satellite.
local SATELLITE_MS = 300
-- Losses that congestion control of the classical kind does not survive.
local LOSSY = 0.005
-- A round trip so many times the smallest is mostly queue.
local BLOATED = 3

function select(flow)
  if flow.smoothed_rtt_ms == 0 or flow.delivered_bytes < 100000 then
    return nil
  end
  if flow.min_rtt_ms > SATELLITE_MS then
    return "iris-min", "satellite"
  end
  if flow.smoothed_rtt_ms > BLOATED * flow.min_rtt_ms then
    return "vivace-latency", "deep queue"
  end
  if flow.loss > LOSSY then
    return "vivace-loss", "losses without a queue"
  end
  return "cubic", "clean"
end

-- What is the same in all tests.
local function on(path)
  path.delivered_bytes = 1e6
  path.smoothed_rtt_ms = path.smoothed_rtt_ms or path.min_rtt_ms
  return select(flow(path))
end

function test_paths()
  assert(on { min_rtt_ms = 600 } == "iris-min")
  assert(on { min_rtt_ms = 40, smoothed_rtt_ms = 300 } == "vivace-latency")
  assert(on { min_rtt_ms = 20, loss = 0.02 } == "vivace-loss")
  assert(on { min_rtt_ms = 20 } == "cubic")
end

function test_too_early()
  assert(select(flow { min_rtt_ms = 600, smoothed_rtt_ms = 600 }) == nil)
end
