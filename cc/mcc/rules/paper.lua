-- The rule of the MCC paper (Section 5.2), TCP Westwood above 3 % loss and BBR otherwise, with hysteresis, which is our
-- addition. As published (paper-published.lua) the rule alternates for as long as the connection lasts where a path loses
-- about 3 %, and where BBR itself causes the loss, in a buffer that is short for it.

-- Loss above which the paper chooses Westwood.
local MAX_BBR_LOSS = 0.03
-- Loss up to which BBR returns: half of that.
local MAX_RETURN_LOSS = 0.015
-- Time of Westwood before BBR returns: the ten seconds over which `loss` is measured, twice as long after each return.
local FIRST_RETURN_S = 10
local MAX_RETURN_S = 320

-- A return needs two switches.
local function return_time_s(switches)
  local returns = math.max(switches - 1, 0) // 2
  return math.min(FIRST_RETURN_S * 2 ^ returns, MAX_RETURN_S)
end

function select(flow)
  if flow.smoothed_rtt_ms == 0 then
    return nil
  end
  if flow.loss > MAX_BBR_LOSS then
    return "westwood", "more than 3 % lost"
  end
  if flow.algorithm ~= "westwood" then
    return "bbr", "at most 3 % lost"
  end
  if flow.loss <= MAX_RETURN_LOSS and flow.since_switch_s >= return_time_s(flow.switches) then
    return "bbr", "at most 1.5 % lost"
  end
  return "westwood", "less than 3 % lost for too short a time"
end

local function westwood(fields)
  fields.algorithm, fields.smoothed_rtt_ms = "westwood", 30
  return select(flow(fields))
end

function test_loss()
  assert(select(flow { loss = 0.04, smoothed_rtt_ms = 30 }) == "westwood")
end

function test_little_loss()
  assert(select(flow { loss = 0.005, smoothed_rtt_ms = 30 }) == "bbr")
  assert(select(flow { loss = 0.025, smoothed_rtt_ms = 30, algorithm = "bbr" }) == "bbr")
end

function test_nothing_known()
  assert(select(flow {}) == nil)
end

function test_return_needs_half_the_loss()
  assert(westwood { loss = 0.02, since_switch_s = 1000, switches = 1 } == "westwood")
  assert(westwood { loss = 0.015, since_switch_s = 10, switches = 1 } == "bbr")
  assert(westwood { loss = 0.015, since_switch_s = 9.9, switches = 1 } == "westwood")
end

function test_return_takes_twice_as_long_each_time()
  assert(westwood { since_switch_s = 19.9, switches = 3 } == "westwood")
  assert(westwood { since_switch_s = 20, switches = 3 } == "bbr")
  assert(westwood { since_switch_s = 319, switches = 100000 } == "westwood")
  assert(westwood { since_switch_s = 320, switches = 100000 } == "bbr")
end
