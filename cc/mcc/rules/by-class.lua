-- By what a connection carries. A stream wants a steady rate and no queue, a player its next segment, and
-- what nobody waits for takes what the others leave.

local for_class = { rtsp = "vivace-latency", dash = "bbr", bulk = "proteus-s" }

function select(flow)
  return for_class[flow.class], "class " .. flow.class
end

function test_classes()
  assert(select(flow { class = "rtsp" }) == "vivace-latency")
  assert(select(flow { class = "bulk" }) == "proteus-s")
end
