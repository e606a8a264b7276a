-- Selects by the path. Satellite: Iris fills the path again soon after loss. Losses without a queue are random, as on
-- Wi-Fi: algorithms that take them for congestion starve. LTE: a deep queue of the connection's own packets.

-- Paths with a larger round trip go over a satellite.
local SATELLITE_MS = 300
-- Share of lost bytes at which loss-based congestion control starves.
local LOSSY = 0.005
-- Round trips above this multiple of the smallest are mostly queueing delay.
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

-- Common input of all tests.
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
