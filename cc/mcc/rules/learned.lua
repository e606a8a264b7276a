-- Learned by learner/ (docs/mcc.md#the-rules-learner): change it by hand, or learn anew.
-- 194248 episodes of 1600 paths; every path counts alike. Held out, seed 1: 0 %.
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
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.834 then
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 4.34 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.43 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.571 then
          -- 1.4 % of the paths: bbr3 0.96, copa 0.93
          return best(flow, "bbr3")
        else
          -- 1.6 % of the paths: bbr3 0.96, copa 0.94, iris-min 0.94, vivace-loss 0.93, bbr 0.92, proteus-p 0.90
          return best(flow, "bbr", "bbr3", "copa", "iris-min", "vivace-loss", "proteus-p")
        end
      else
        if flow.loss <= 0.188 then
          -- 2.2 % of the paths: bbr 0.94, bbr3 0.93, copa 0.93
          return best(flow, "bbr", "bbr3", "copa")
        else
          -- 1.0 % of the paths: bbr3 0.94, copa 0.94, iris-min 0.92, vivace-loss 0.92
          return best(flow, "bbr3", "copa", "iris-min", "vivace-loss")
        end
      end
    else
      if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.14 then
        -- 12.9 % of the paths: bbr 0.96, vivace-loss 0.91
        return best(flow, "bbr")
      else
        if flow.recent_min_rtt_ms <= 171 then
          -- 9.1 % of the paths: bbr 0.95, vivace-loss 0.92
          return best(flow, "bbr")
        else
          if flow.max_delivery_mbps <= 2.38 then
            if flow.loss <= 0.0422 then
              -- 1.3 % of the paths: vivace-loss 0.97, bbr 0.90
              return best(flow, "vivace-loss")
            else
              -- 1.0 % of the paths: bbr 0.94, vivace-loss 0.92
              return best(flow, "bbr")
            end
          else
            -- 2.0 % of the paths: vivace-loss 0.92, bbr 0.90
            return best(flow, "bbr", "vivace-loss")
          end
        end
      end
    end
  else
    if flow.recent_min_rtt_ms <= 326 then
      -- 53.6 % of the paths: bbr 0.97, iris-min 0.96
      return best(flow, "bbr", "iris-min")
    else
      if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000282 then
        -- 5.1 % of the paths: iris-min 0.99, proteus-p 0.91
        return best(flow, "iris-min")
      else
        -- 8.9 % of the paths: vivace-loss 0.94, bbr 0.93
        return best(flow, "bbr", "vivace-loss")
      end
    end
  end
end

function settled.dash(flow)
  if flow.recent_min_rtt_ms <= 336 then
    if flow.loss <= 0.00092 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 508 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.527 then
          if flow.max_delivery_mbps <= 2.57 then
            -- 1.9 % of the paths: iris-min 0.95, copa 0.93
            return best(flow, "iris-min")
          else
            if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 16.3 then
              -- 1.0 % of the paths: bbr3 0.96, vivace-latency 0.95, proteus-p 0.94
              return best(flow, "bbr3", "vivace-latency", "proteus-p")
            else
              -- 7.3 % of the paths: bbr3 0.94, proteus-p 0.94, iris-min 0.93, vivace-latency 0.92, bbr 0.92
              return best(flow, "bbr", "bbr3", "proteus-p", "iris-min", "vivace-latency")
            end
          end
        else
          -- 1.7 % of the paths: bbr3 0.91, bbr 0.90
          return best(flow, "bbr", "bbr3")
        end
      else
        -- 4.0 % of the paths: bbr 0.97, proteus-p 0.95, bbr3 0.95
        return best(flow, "bbr", "proteus-p", "bbr3")
      end
    else
      -- 66.7 % of the paths: bbr 0.94, vivace-loss 0.90
      return best(flow, "bbr")
    end
  else
    if flow.recent_min_rtt_ms <= 668 then
      if flow.loss <= 0.0107 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.622 then
          -- 4.8 % of the paths: vivace-latency 0.94, proteus-p 0.92
          return best(flow, "vivace-latency", "proteus-p")
        else
          if flow.max_delivery_mbps <= 8.16 then
            -- 1.1 % of the paths: vivace-loss 0.91, bbr3 0.85
            return best(flow, "vivace-loss")
          else
            -- 1.0 % of the paths: vivace-latency 0.91, bbr3 0.90, proteus-p 0.90
            return best(flow, "vivace-latency", "bbr3", "proteus-p")
          end
        end
      else
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.67 then
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.31 then
            -- 1.8 % of the paths: vivace-latency 0.92, vivace-loss 0.89
            return best(flow, "vivace-latency")
          else
            if flow.max_delivery_mbps <= 2.01 then
              -- 1.1 % of the paths: vivace-loss 0.88, bbr 0.86, vivace-latency 0.85
              return best(flow, "bbr", "vivace-loss", "vivace-latency")
            else
              -- 1.0 % of the paths: vivace-latency 0.91, vivace-loss 0.89
              return best(flow, "vivace-latency", "vivace-loss")
            end
          end
        else
          -- 1.4 % of the paths: bbr 0.90, vivace-loss 0.86
          return best(flow, "bbr")
        end
      end
    else
      if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.14 then
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 558 then
          -- 1.2 % of the paths: vivace-loss 0.93, vivace-latency 0.90
          return best(flow, "vivace-loss")
        else
          -- 1.1 % of the paths: bbr 0.91, vivace-loss 0.88
          return best(flow, "bbr")
        end
      else
        -- 2.9 % of the paths: bbr 0.92, vivace-loss 0.83
        return best(flow, "bbr")
      end
    end
  end
end

function settled.rtsp(flow)
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.826 then
    if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.07 then
      if flow.loss <= 0.0287 then
        -- 5.5 % of the paths: vivace-latency 0.90, proteus-p 0.88
        return best(flow, "vivace-latency", "proteus-p")
      else
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000256 then
          -- 1.0 % of the paths: iris-min 0.94, bbr 0.91
          return best(flow, "iris-min")
        else
          -- 3.2 % of the paths: bbr 0.90, vivace-latency 0.87
          return best(flow, "vivace-latency", "bbr")
        end
      end
    else
      if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.69 then
        if flow.loss <= 0.0166 then
          if flow.recent_min_rtt_ms <= 108 then
            -- 1.0 % of the paths: bbr3 0.92, bbr 0.90
            return best(flow, "bbr3")
          else
            -- 1.3 % of the paths: bbr 0.87, bbr3 0.86
            return best(flow, "bbr", "bbr3")
          end
        else
          -- 2.9 % of the paths: bbr 0.94, vivace-loss 0.90
          return best(flow, "bbr")
        end
      else
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.683 then
          if flow.max_delivery_mbps <= 34.9 then
            if flow.recent_min_rtt_ms <= 95.8 then
              if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.38 then
                -- 1.9 % of the paths: bbr3 0.88, vivace-loss 0.87, copa 0.87, vivace-latency 0.86, iris-min 0.85, proteus-p 0.84
                return best(flow, "vivace-latency", "bbr3", "vivace-loss", "copa", "iris-min", "proteus-p")
              else
                if flow.recent_min_rtt_ms <= 11.7 then
                  -- 1.1 % of the paths: bbr3 0.83, vivace-loss 0.80, copa 0.80, vivace-latency 0.79
                  return best(flow, "vivace-latency", "bbr3", "vivace-loss", "copa")
                else
                  -- 4.7 % of the paths: copa 0.81, iris-min 0.79
                  return best(flow, "copa")
                end
              end
            else
              -- 2.5 % of the paths: bbr 0.76, bbr3 0.73
              return best(flow, "bbr")
            end
          else
            -- 1.1 % of the paths: vivace-latency 0.80, bbr 0.79
            return best(flow, "vivace-latency", "bbr")
          end
        else
          -- 5.4 % of the paths: vivace-latency 0.81, bbr3 0.80
          return best(flow, "vivace-latency", "bbr3")
        end
      end
    end
  else
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 31.5 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 1.7 then
        -- 1.4 % of the paths: copa 0.93, bbr 0.86
        return best(flow, "copa")
      else
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.35 then
          -- 6.6 % of the paths: vivace-latency 0.96, proteus-p 0.96
          return best(flow, "vivace-latency", "proteus-p")
        else
          if flow.recent_min_rtt_ms <= 247 then
            -- 15.6 % of the paths: vivace-latency 0.96, proteus-p 0.94
            return best(flow, "vivace-latency", "proteus-p")
          else
            -- 1.2 % of the paths: bbr 0.88, bbr3 0.84
            return best(flow, "bbr")
          end
        end
      end
    else
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 473 then
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.56 then
          if flow.loss <= 0.00352 then
            -- 9.9 % of the paths: proteus-p 0.94, vivace-latency 0.94, iris-min 0.92
            return best(flow, "vivace-latency", "proteus-p", "iris-min")
          else
            if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.13 then
              if flow.recent_min_rtt_ms <= 228 then
                -- 2.3 % of the paths: iris-min 0.98, bbr 0.96
                return best(flow, "iris-min", "bbr")
              else
                -- 1.6 % of the paths: vivace-latency 0.95, proteus-p 0.94
                return best(flow, "vivace-latency", "proteus-p")
              end
            else
              -- 6.6 % of the paths: bbr 0.92, iris-min 0.91, vivace-latency 0.90, proteus-p 0.90, copa 0.88
              return best(flow, "vivace-latency", "bbr", "iris-min", "proteus-p", "copa")
            end
          end
        else
          -- 6.9 % of the paths: proteus-p 0.91, vivace-latency 0.91
          return best(flow, "vivace-latency", "proteus-p")
        end
      else
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000772 then
          -- 10.8 % of the paths: iris-min 0.97, vivace-latency 0.90
          return best(flow, "iris-min")
        else
          -- 5.4 % of the paths: vivace-latency 0.93, proteus-p 0.92
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
    if flow.recent_min_rtt_ms <= 500 then
      -- 26.7 % of the paths: bbr 0.96, vivace-loss 0.89
      return best(flow, "bbr")
    else
      -- 9.4 % of the paths: iris-min 0.92, bbr 0.90
      return best(flow, "iris-min", "bbr")
    end
  end
end

function beginning.dash(flow)
  if flow.recent_min_rtt_ms <= 228 then
    -- 77.7 % of the paths: bbr 0.94, bbr3 0.90
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 651 then
      if flow.recent_min_rtt_ms <= 365 then
        -- 7.5 % of the paths: bbr 0.86, iris-min 0.84
        return best(flow, "bbr", "iris-min")
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
      -- 44.6 % of the paths: vivace-latency 0.91, proteus-p 0.90
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
  if flow.recent_min_rtt_ms <= 100 then
    if flow.recent_min_rtt_ms <= 38.1 then
      -- 42.1 % of the paths: vivace-latency 0.91, proteus-p 0.90
      return best(flow, "vivace-latency", "proteus-p")
    else
      -- 19.6 % of the paths: proteus-p 0.88, vivace-latency 0.88
      return best(flow, "proteus-p", "vivace-latency")
    end
  else
    -- 38.4 % of the paths: iris-min 0.87, bbr 0.83
    return best(flow, "iris-min")
  end
end

function select(flow)
  local decide = settled[flow.class]
  if flow.delivered_bytes < 100000 or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0
    or flow.path_age_s < 9 or flow.path_age_s * 1000 < 30 * flow.recent_min_rtt_ms then
    -- Where the round trip has moved, but not far, the rate goes on, and so does what drives.
    if flow.rtt_ratio >= 0.25 and flow.rtt_ratio <= 4 then
      return nil
    end
    local trees = flow.path_age_s < flow.age_s and moved or beginning
    decide = trees[flow.class]
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

function test_others_are_left_alone()
  local known = { class = "another", path_age_s = 20, delivered_bytes = 1e6 }
  known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
  assert(select(flow(known)) == nil)
end
