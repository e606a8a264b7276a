-- Selects by the player's reported buffer (CMCD): an aggressive algorithm before a stall, a scavenger with a full
-- buffer.

-- Buffer levels, in seconds of media, below and above which the rule selects an algorithm.
local SHORT_S, PLENTY_S = 5, 12
-- Older reports are ignored.
local FRESH_S = 10

function select(flow)
  local player = flow.player
  if not player or player.age_s > FRESH_S then
    return nil
  end
  if player.starved or player.buffer_s and player.buffer_s < SHORT_S then
    return "bbr", "about to stall"
  end
  if player.buffer_s and player.buffer_s > PLENTY_S then
    return "proteus-s", "has plenty"
  end
  -- Between the two levels the algorithm stays, which prevents flapping.
  return nil
end

local function with(player)
  player.age_s = player.age_s or 0
  return select(flow { class = "dash", player = player })
end

function test_buffer()
  assert(with { buffer_s = 2 } == "bbr")
  assert(with { buffer_s = 14, starved = true } == "bbr")
  assert(with { buffer_s = 14 } == "proteus-s")
  assert(with { buffer_s = 8 } == nil)
end

function test_nothing_fresh()
  assert(with { buffer_s = 2, age_s = 60 } == nil)
  assert(select(flow {}) == nil)
end
