-- Learned by learner/ (docs/research/mcc.md#rules-learner): change it by hand, or learn anew.
-- 192388 episodes of 1600 paths; every path counts alike. Held out, seed 1: 0 %.
-- Utility: rate (smallest / mean round trip)^d, d = 0.1 for bulk, 0.3 for dash, 1 for rtsp; of the best algorithm's on the path.

-- A change costs something: what drives stays if it is among those that are nearly as good as the best.
local function best(flow, name, ...)
  for _, other in ipairs({ ... }) do
    if flow.algorithm == other then
      return other, "learned: nearly as good as " .. name
    end
  end
  return name, "learned"
end

-- On a path that has settled.
local settled = {}

function settled.bulk(flow)
  if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.0003 then
    if flow.recent_min_rtt_ms <= 314 then
      -- 15.4 % of the paths: iris-min 0.98, bbr 0.96
      return best(flow, "bbr", "iris-min")
    else
      -- 6.1 % of the paths: iris-min 0.98, proteus-p 0.91
      return best(flow, "iris-min")
    end
  else
    if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.891 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.93 then
        if flow.loss <= 0.244 then
          -- 2.8 % of the paths: bbr3 0.95, copa 0.94, iris-min 0.93, bbr 0.93, vivace-loss 0.91
          return best(flow, "bbr", "bbr3", "copa", "iris-min", "vivace-loss")
        else
          -- 1.5 % of the paths: bbr3 0.97, iris-min 0.97, copa 0.96, vivace-loss 0.96, vivace-latency 0.95
          return best(flow, "bbr3", "iris-min", "copa", "vivace-loss", "vivace-latency")
        end
      else
        -- 26.5 % of the paths: bbr 0.95, vivace-loss 0.93
        return best(flow, "bbr", "vivace-loss")
      end
    else
      -- 47.9 % of the paths: bbr 0.96, vivace-loss 0.95
      return best(flow, "bbr", "vivace-loss")
    end
  end
end

function settled.dash(flow)
  if flow.recent_min_rtt_ms <= 336 then
    if flow.loss <= 0.000979 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 508 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.536 then
          if flow.max_delivery_mbps <= 2.55 then
            -- 2.0 % of the paths: iris-min 0.95, copa 0.93
            return best(flow, "iris-min")
          else
            if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 19.2 then
              -- 1.1 % of the paths: bbr3 0.95, vivace-latency 0.95, proteus-p 0.94
              return best(flow, "bbr3", "vivace-latency", "proteus-p")
            else
              -- 7.2 % of the paths: bbr3 0.95, proteus-p 0.94, iris-min 0.93, bbr 0.93, vivace-latency 0.92
              return best(flow, "bbr", "bbr3", "proteus-p", "iris-min", "vivace-latency")
            end
          end
        else
          -- 1.8 % of the paths: bbr3 0.91, bbr 0.90
          return best(flow, "bbr", "bbr3")
        end
      else
        -- 4.0 % of the paths: bbr 0.97, proteus-p 0.95, bbr3 0.95
        return best(flow, "bbr", "proteus-p", "bbr3")
      end
    else
      -- 66.5 % of the paths: bbr 0.95, vivace-loss 0.90
      return best(flow, "bbr")
    end
  else
    if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.645 then
      if flow.loss <= 0.0108 then
        if flow.recent_min_rtt_ms <= 656 then
          -- 4.9 % of the paths: vivace-latency 0.94, proteus-p 0.92
          return best(flow, "vivace-latency")
        else
          -- 1.8 % of the paths: vivace-loss 0.95, bbr3 0.95, vivace-latency 0.94
          return best(flow, "vivace-loss", "bbr3", "vivace-latency")
        end
      else
        if flow.recent_min_rtt_ms <= 668 then
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.31 then
            -- 1.7 % of the paths: vivace-latency 0.91, vivace-loss 0.88
            return best(flow, "vivace-latency")
          else
            -- 1.9 % of the paths: vivace-latency 0.90, vivace-loss 0.88, bbr 0.85
            return best(flow, "bbr", "vivace-latency", "vivace-loss")
          end
        else
          -- 1.1 % of the paths: bbr 0.86, vivace-loss 0.86
          return best(flow, "bbr", "vivace-loss")
        end
      end
    else
      if flow.loss <= 0.000576 then
        if flow.recent_min_rtt_ms <= 660 then
          -- 1.3 % of the paths: vivace-latency 0.90, bbr3 0.88
          return best(flow, "vivace-latency", "bbr3")
        else
          -- 1.0 % of the paths: bbr 0.92, bbr3 0.88
          return best(flow, "bbr")
        end
      else
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.31 then
          -- 1.7 % of the paths: bbr 0.87, vivace-loss 0.85
          return best(flow, "bbr")
        else
          if flow.recent_min_rtt_ms <= 575 then
            -- 1.0 % of the paths: vivace-loss 0.92, bbr 0.84
            return best(flow, "vivace-loss")
          else
            -- 1.0 % of the paths: bbr 0.90, vivace-loss 0.75
            return best(flow, "bbr")
          end
        end
      end
    end
  end
end

function settled.rtsp(flow)
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.857 then
    if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.08 then
      if flow.loss <= 0.0296 then
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000671 then
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.39 then
            -- 1.2 % of the paths: iris-min 0.95, bbr 0.90
            return best(flow, "iris-min")
          else
            -- 1.0 % of the paths: iris-min 0.96, vivace-latency 0.93
            return best(flow, "vivace-latency", "iris-min")
          end
        else
          -- 3.6 % of the paths: vivace-latency 0.89, proteus-p 0.87
          return best(flow, "vivace-latency")
        end
      else
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 8.98e-05 then
          -- 1.0 % of the paths: iris-min 0.95, bbr 0.91
          return best(flow, "iris-min")
        else
          -- 3.5 % of the paths: bbr 0.91, vivace-latency 0.87
          return best(flow, "vivace-latency", "bbr")
        end
      end
    else
      if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.681 then
        if flow.recent_min_rtt_ms <= 95.8 then
          if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 3.19 then
            if flow.recent_min_rtt_ms <= 20.5 then
              -- 1.4 % of the paths: vivace-latency 0.86, proteus-p 0.85, copa 0.85
              return best(flow, "vivace-latency", "proteus-p", "copa")
            else
              -- 1.1 % of the paths: iris-min 0.92, copa 0.91
              return best(flow, "iris-min", "copa")
            end
          else
            -- 5.0 % of the paths: bbr 0.82, copa 0.81
            return best(flow, "bbr", "copa")
          end
        else
          -- 2.6 % of the paths: bbr 0.80, bbr3 0.75
          return best(flow, "bbr")
        end
      else
        if flow.max_delivery_mbps <= 2.36 then
          if flow.recent_min_rtt_ms <= 267 then
            -- 2.9 % of the paths: copa 0.87, bbr3 0.87, bbr 0.86, iris-min 0.85, vivace-loss 0.85, vivace-latency 0.84, proteus-p 0.83
            return best(flow, "vivace-latency", "copa", "bbr3", "bbr", "iris-min", "vivace-loss", "proteus-p")
          else
            -- 1.1 % of the paths: bbr 0.89, bbr3 0.87
            return best(flow, "bbr")
          end
        else
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 2.33 then
            if flow.loss <= 0.0183 then
              -- 1.7 % of the paths: bbr 0.86, bbr3 0.86
              return best(flow, "bbr", "bbr3")
            else
              -- 1.6 % of the paths: bbr 0.91, vivace-latency 0.91
              return best(flow, "vivace-latency", "bbr")
            end
          else
            -- 1.9 % of the paths: vivace-latency 0.82, proteus-p 0.78
            return best(flow, "vivace-latency")
          end
        end
      end
    end
  else
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 31.5 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 1.67 then
        -- 1.8 % of the paths: copa 0.93, bbr 0.87
        return best(flow, "copa")
      else
        if flow.max_delivery_mbps <= 0.495 then
          -- 1.1 % of the paths: bbr 0.91, bbr3 0.85
          return best(flow, "bbr")
        else
          -- 24.0 % of the paths: vivace-latency 0.96, proteus-p 0.95
          return best(flow, "vivace-latency", "proteus-p")
        end
      end
    else
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 385 then
        -- 26.2 % of the paths: proteus-p 0.92, vivace-latency 0.92, iris-min 0.90
        return best(flow, "vivace-latency", "proteus-p", "iris-min")
      else
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000775 then
          if flow.recent_min_rtt_ms <= 329 then
            if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.62 then
              -- 5.7 % of the paths: iris-min 0.98, vivace-latency 0.92
              return best(flow, "iris-min")
            else
              -- 1.3 % of the paths: iris-min 0.96, vivace-latency 0.93, proteus-p 0.92
              return best(flow, "vivace-latency", "iris-min", "proteus-p")
            end
          else
            -- 4.6 % of the paths: iris-min 0.96, vivace-latency 0.87
            return best(flow, "iris-min")
          end
        else
          -- 6.0 % of the paths: vivace-latency 0.92, proteus-p 0.91
          return best(flow, "vivace-latency", "proteus-p")
        end
      end
    end
  end
end

-- On the first one, while nothing is known but its round trip.
local beginning = {}

function beginning.bulk(flow)
  if flow.recent_min_rtt_ms <= 116 then
    -- 63.9 % of the paths: bbr 0.97, vivace-loss 0.94
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 468 then
      -- 25.7 % of the paths: bbr 0.96, vivace-loss 0.89
      return best(flow, "bbr")
    else
      -- 10.4 % of the paths: iris-min 0.91, bbr 0.90
      return best(flow, "iris-min", "bbr")
    end
  end
end

function beginning.dash(flow)
  if flow.recent_min_rtt_ms <= 228 then
    -- 77.6 % of the paths: bbr 0.94, bbr3 0.89
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 651 then
      if flow.recent_min_rtt_ms <= 365 then
        -- 7.6 % of the paths: bbr 0.86, iris-min 0.84
        return best(flow, "bbr")
      else
        -- 9.8 % of the paths: bbr3 0.90, bbr 0.85
        return best(flow, "bbr3")
      end
    else
      -- 5.1 % of the paths: bbr 0.89, bbr3 0.83
      return best(flow, "bbr")
    end
  end
end

function beginning.rtsp(flow)
  if flow.recent_min_rtt_ms <= 107 then
    if flow.recent_min_rtt_ms <= 42.4 then
      -- 44.5 % of the paths: vivace-latency 0.91, proteus-p 0.90
      return best(flow, "vivace-latency", "proteus-p")
    else
      -- 17.8 % of the paths: proteus-p 0.88, vivace-latency 0.87
      return best(flow, "proteus-p", "vivace-latency")
    end
  else
    -- 37.7 % of the paths: iris-min 0.87, bbr 0.84
    return best(flow, "iris-min")
  end
end

-- The same on a later one: a path that has changed may do so again soon.
local moved = {}

function moved.bulk(flow)
  if flow.recent_min_rtt_ms <= 423 then
    -- 87.8 % of the paths: bbr 0.97, vivace-loss 0.92
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 635 then
      -- 6.7 % of the paths: bbr 0.94, iris-min 0.89
      return best(flow, "bbr")
    else
      -- 5.5 % of the paths: iris-min 0.94, bbr 0.83
      return best(flow, "iris-min")
    end
  end
end

function moved.dash(flow)
  if flow.recent_min_rtt_ms <= 288 then
    if flow.recent_min_rtt_ms <= 209 then
      -- 76.2 % of the paths: bbr 0.94, bbr3 0.89
      return best(flow, "bbr")
    else
      -- 5.6 % of the paths: bbr3 0.88, bbr 0.86
      return best(flow, "bbr3", "bbr")
    end
  else
    if flow.recent_min_rtt_ms <= 648 then
      -- 12.9 % of the paths: bbr 0.88, iris-min 0.86, bbr3 0.86
      return best(flow, "bbr", "iris-min", "bbr3")
    else
      -- 5.2 % of the paths: iris-min 0.93, bbr 0.81
      return best(flow, "iris-min")
    end
  end
end

function moved.rtsp(flow)
  if flow.recent_min_rtt_ms <= 109 then
    if flow.recent_min_rtt_ms <= 38.1 then
      -- 42.1 % of the paths: vivace-latency 0.91, proteus-p 0.90
      return best(flow, "vivace-latency", "proteus-p")
    else
      -- 20.5 % of the paths: proteus-p 0.89, vivace-latency 0.88
      return best(flow, "proteus-p", "vivace-latency")
    end
  else
    -- 37.4 % of the paths: iris-min 0.87, bbr 0.83
    return best(flow, "iris-min")
  end
end

-- A player whose buffer is short has no more to wait with than a live stream; and what a burst makes it
-- ask for then it has to wait for when the burst is over. What its buffer holds, it says itself (CMCD).
local function class_of(flow)
  local buffer_s = flow.player and flow.player.buffer_s
  if flow.class == "dash" and buffer_s and buffer_s < 10 then
    return "rtsp"
  end
  return flow.class
end

function select(flow)
  local class = class_of(flow)
  local decide = settled[class]
  if flow.delivered_bytes < 100000 or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0
    or flow.path_age_s < 9 or flow.path_age_s * 1000 < 30 * flow.recent_min_rtt_ms then
    -- Where the round trip has moved, but not far, the rate goes on, and so does what drives.
    if flow.rtt_ratio >= 0.25 and flow.rtt_ratio <= 4 then
      return nil
    end
    local trees = flow.path_age_s < flow.age_s and moved or beginning
    decide = trees[class]
  end
  if decide then
    return decide(flow)
  end
end

function test_there_is_an_answer_for_every_class()
  for class in pairs(settled) do
    assert(type(select(flow { class = class })) == "string", class)
    local known = { class = class, path_age_s = 20, delivered_bytes = 1e6 }
    known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
    assert(type(select(flow(known))) == "string", class)
  end
end

function test_who_drives_stays_where_the_round_trip_moves()
  local path = { delivered_bytes = 1e6, age_s = 20, path_age_s = 1, max_delivery_mbps = 8 }
  path.recent_min_rtt_ms = 700
  for class in pairs(settled) do
    path.class = class
    path.rtt_ratio = 2
    assert(select(flow(path)) == nil, class)
    path.rtt_ratio = 20
    assert(type(select(flow(path))) == "string", class)
  end
end

function test_a_player_with_a_short_buffer_is_as_a_stream()
  for _, path_age_s in ipairs { 1, 20 } do
    local path = { path_age_s = path_age_s, age_s = path_age_s, delivered_bytes = 1e6 }
    path.recent_min_rtt_ms, path.max_delivery_mbps = 40, 8
    local function with(class, player)
      path.class, path.player = class, player
      return (select(flow(path)))
    end
    assert(with("dash", { buffer_s = 9 }) == with("rtsp"))
    assert(with("dash", { buffer_s = 11 }) == with("dash"))
    assert(with("dash", { bitrate_kbps = 620 }) == with("dash"))
    assert(with("bulk", { buffer_s = 1 }) == with("bulk"))
  end
end

function test_others_are_left_alone()
  local known = { class = "another", path_age_s = 20, delivered_bytes = 1e6 }
  known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
  assert(select(flow(known)) == nil)
end
