-- The rule of the MCC paper as published (Section 5.2): TCP Westwood above 3 % loss, BBR otherwise. It alternates where
-- the loss is near 3 %, or is BBR's own; paper.lua has hysteresis.

function select(flow)
  if flow.smoothed_rtt_ms == 0 then
    return nil
  end
  if flow.loss > 0.03 then
    return "westwood", "more than 3 % lost"
  end
  return "bbr", "at most 3 % lost"
end

function test_loss()
  assert(select(flow { loss = 0.04, smoothed_rtt_ms = 30 }) == "westwood")
end

function test_little_loss()
  assert(select(flow { loss = 0.005, smoothed_rtt_ms = 30 }) == "bbr")
end

function test_nothing_known()
  assert(select(flow {}) == nil)
end
