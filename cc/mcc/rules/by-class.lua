-- Selects by the traffic class: a steady rate without a queue for live streams, throughput for players' segments, and
-- a scavenger for bulk transfers.

local for_class = { rtsp = "vivace-latency", dash = "bbr", bulk = "proteus-s" }

function select(flow)
  return for_class[flow.class], "class " .. flow.class
end

function test_classes()
  assert(select(flow { class = "rtsp" }) == "vivace-latency")
  assert(select(flow { class = "bulk" }) == "proteus-s")
end
