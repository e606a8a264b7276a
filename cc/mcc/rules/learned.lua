-- Learned by learner/ (docs/mcc.md#the-rules-learner): change it by hand, or learn anew.
-- 189738 episodes of 1600 paths; every path counts alike. Held out, seed 1: 0 %.
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
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.826 then
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.47 then
      if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.559 then
        -- 1.3 % of the paths: bbr3 0.97, copa 0.97, iris-min 0.96
        return best(flow, "bbr3", "copa", "iris-min")
      else
        -- 1.5 % of the paths: bbr3 0.98, iris-min 0.97, copa 0.97, vivace-loss 0.96, bbr 0.95
        return best(flow, "bbr", "bbr3", "iris-min", "copa", "vivace-loss")
      end
    else
      if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.09 then
        if flow.loss <= 0.0251 then
          if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000156 then
            -- 1.0 % of the paths: iris-min 0.98, bbr 0.93
            return best(flow, "iris-min")
          else
            -- 3.5 % of the paths: bbr 0.96, vivace-loss 0.94
            return best(flow, "bbr", "vivace-loss")
          end
        else
          if flow.algorithm ~= "copa" then
            if flow.recent_min_rtt_ms <= 207 then
              if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.01 then
                -- 1.0 % of the paths: iris-min 1.00, bbr 0.95
                return best(flow, "iris-min")
              else
                -- 1.5 % of the paths: bbr 0.97, iris-min 0.95
                return best(flow, "bbr", "iris-min")
              end
            else
              -- 1.4 % of the paths: bbr 0.92, vivace-loss 0.88
              return best(flow, "bbr")
            end
          else
            -- 1.1 % of the paths: bbr 0.96, vivace-loss 0.96, iris-min 0.95
            return best(flow, "bbr", "vivace-loss", "iris-min")
          end
        end
      else
        if flow.recent_min_rtt_ms <= 171 then
          if flow.max_delivery_mbps <= 2.98 then
            if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.449 then
              -- 1.1 % of the paths: copa 0.94, bbr3 0.89
              return best(flow, "copa")
            else
              -- 3.6 % of the paths: bbr 0.97, copa 0.96, iris-min 0.95
              return best(flow, "bbr", "copa", "iris-min")
            end
          else
            -- 5.6 % of the paths: bbr 0.97, bbr3 0.92
            return best(flow, "bbr")
          end
        else
          if flow.max_delivery_mbps <= 2.39 then
            if flow.loss <= 0.0338 then
              -- 1.1 % of the paths: vivace-loss 0.97, bbr3 0.91
              return best(flow, "vivace-loss")
            else
              -- 1.3 % of the paths: bbr 0.93, vivace-loss 0.91
              return best(flow, "bbr")
            end
          else
            -- 1.9 % of the paths: vivace-loss 0.92, bbr 0.89, bbr3 0.88
            return best(flow, "bbr", "vivace-loss", "bbr3")
          end
        end
      end
    end
  else
    if flow.recent_min_rtt_ms <= 324 then
      if flow.loss <= 0.000891 then
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 264 then
          -- 11.1 % of the paths: iris-min 0.97, bbr3 0.96, bbr 0.96, copa 0.95, proteus-p 0.95, vivace-latency 0.94
          return best(flow, "bbr", "iris-min", "bbr3", "copa", "proteus-p", "vivace-latency")
        else
          if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000626 then
            -- 3.3 % of the paths: iris-min 0.99, bbr 0.96
            return best(flow, "iris-min")
          else
            -- 1.8 % of the paths: bbr 0.97, bbr3 0.96
            return best(flow, "bbr", "bbr3")
          end
        end
      else
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.38 then
          if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.00125 then
            if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 44.7 then
              -- 1.1 % of the paths: iris-min 0.99, bbr 0.97, vivace-loss 0.96
              return best(flow, "bbr", "iris-min", "vivace-loss")
            else
              if flow.loss <= 0.0164 then
                -- 4.3 % of the paths: iris-min 0.99, vivace-loss 0.97, bbr 0.96
                return best(flow, "bbr", "iris-min", "vivace-loss")
              else
                -- 2.0 % of the paths: iris-min 0.99, copa 0.95
                return best(flow, "iris-min")
              end
            end
          else
            -- 12.2 % of the paths: bbr 0.98, vivace-loss 0.97, iris-min 0.97
            return best(flow, "bbr", "vivace-loss", "iris-min")
          end
        else
          -- 20.4 % of the paths: bbr 0.97, iris-min 0.97
          return best(flow, "bbr", "iris-min")
        end
      end
    else
      if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.0003 then
        -- 6.5 % of the paths: iris-min 0.99, proteus-p 0.91
        return best(flow, "iris-min")
      else
        if flow.max_delivery_mbps <= 20.9 then
          if flow.max_delivery_mbps <= 0.538 then
            -- 1.0 % of the paths: vivace-loss 0.94, bbr 0.94
            return best(flow, "bbr", "vivace-loss")
          else
            if flow.loss <= 0.00752 then
              if flow.max_delivery_mbps <= 1.9 then
                -- 1.7 % of the paths: vivace-loss 0.95, iris-min 0.93
                return best(flow, "vivace-loss", "iris-min")
              else
                -- 2.2 % of the paths: vivace-loss 0.93, bbr3 0.92, bbr 0.92
                return best(flow, "bbr", "vivace-loss", "bbr3")
              end
            else
              -- 3.6 % of the paths: vivace-loss 0.94, bbr 0.93
              return best(flow, "bbr", "vivace-loss")
            end
          end
        else
          -- 1.8 % of the paths: bbr 0.94, vivace-loss 0.90
          return best(flow, "bbr")
        end
      end
    end
  end
end

function settled.dash(flow)
  if flow.recent_min_rtt_ms <= 365 then
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 508 then
      if flow.loss <= 0.000988 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.533 then
          if flow.recent_min_rtt_ms <= 184 then
            -- 8.2 % of the paths: bbr3 0.95, iris-min 0.94, copa 0.94
            return best(flow, "bbr3", "iris-min", "copa")
          else
            -- 1.5 % of the paths: iris-min 0.92, bbr3 0.91
            return best(flow, "iris-min", "bbr3")
          end
        else
          -- 1.8 % of the paths: bbr3 0.93, bbr 0.91, vivace-loss 0.90
          return best(flow, "bbr", "bbr3", "vivace-loss")
        end
      else
        if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.12 then
          -- 22.7 % of the paths: bbr 0.97, iris-min 0.94
          return best(flow, "bbr")
        else
          if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.518 then
            if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.367 then
              if flow.max_delivery_mbps <= 2.58 then
                -- 1.7 % of the paths: copa 0.93, bbr3 0.89
                return best(flow, "copa")
              else
                -- 1.8 % of the paths: bbr 0.92, bbr3 0.85
                return best(flow, "bbr")
              end
            else
              if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 14.2 then
                if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.194 then
                  -- 7.9 % of the paths: bbr 0.97, iris-min 0.96
                  return best(flow, "bbr", "iris-min")
                else
                  if flow.recent_min_rtt_ms <= 16.9 then
                    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 5.16 then
                      -- 2.5 % of the paths: vivace-latency 0.95, proteus-p 0.95, bbr3 0.95, copa 0.94, bbr 0.93, iris-min 0.93, vivace-loss 0.92
                      return best(flow, "bbr", "vivace-latency", "proteus-p", "bbr3", "copa", "iris-min", "vivace-loss")
                    else
                      -- 1.0 % of the paths: vivace-latency 0.96, proteus-p 0.96, bbr3 0.95
                      return best(flow, "vivace-latency", "proteus-p", "bbr3")
                    end
                  else
                    -- 5.2 % of the paths: copa 0.93, bbr3 0.93, bbr 0.93, iris-min 0.93
                    return best(flow, "bbr", "copa", "bbr3", "iris-min")
                  end
                end
              else
                -- 8.3 % of the paths: bbr 0.94, iris-min 0.94, copa 0.94
                return best(flow, "bbr", "iris-min", "copa")
              end
            end
          else
            if flow.max_delivery_mbps <= 3.23 then
              if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 6.43 then
                -- 3.0 % of the paths: bbr 0.96, copa 0.94
                return best(flow, "bbr", "copa")
              else
                -- 2.0 % of the paths: vivace-loss 0.94, bbr 0.91
                return best(flow, "vivace-loss")
              end
            else
              -- 2.5 % of the paths: bbr3 0.94, bbr 0.92, vivace-loss 0.92
              return best(flow, "bbr", "bbr3", "vivace-loss")
            end
          end
        end
      end
    else
      -- 11.3 % of the paths: bbr 0.97, proteus-p 0.92
      return best(flow, "bbr")
    end
  else
    if flow.recent_min_rtt_ms <= 662 then
      if flow.loss <= 0.0105 then
        if flow.loss <= 4.95e-05 then
          -- 3.5 % of the paths: vivace-latency 0.93, proteus-p 0.90
          return best(flow, "vivace-latency")
        else
          if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.621 then
            -- 2.7 % of the paths: vivace-latency 0.95, proteus-p 0.93
            return best(flow, "vivace-latency")
          else
            -- 1.2 % of the paths: vivace-loss 0.93, bbr3 0.90
            return best(flow, "vivace-loss")
          end
        end
      else
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 49.3 then
          -- 2.2 % of the paths: vivace-loss 0.88, bbr 0.88, vivace-latency 0.88
          return best(flow, "bbr", "vivace-loss", "vivace-latency")
        else
          if flow.loss <= 0.0533 then
            -- 1.6 % of the paths: vivace-latency 0.88, bbr 0.87, vivace-loss 0.87
            return best(flow, "bbr", "vivace-latency", "vivace-loss")
          else
            -- 1.0 % of the paths: vivace-latency 0.92, bbr3 0.89
            return best(flow, "vivace-latency")
          end
        end
      end
    else
      if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.626 then
        if flow.loss <= 0.00899 then
          -- 2.0 % of the paths: bbr3 0.95, vivace-loss 0.95, vivace-latency 0.93
          return best(flow, "bbr3", "vivace-loss", "vivace-latency")
        else
          -- 1.3 % of the paths: bbr 0.86, vivace-loss 0.85
          return best(flow, "bbr", "vivace-loss")
        end
      else
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.09 then
          -- 1.0 % of the paths: vivace-loss 0.89, proteus-p 0.86
          return best(flow, "vivace-loss")
        else
          -- 2.1 % of the paths: bbr 0.92, bbr3 0.81
          return best(flow, "bbr")
        end
      end
    end
  end
end

function settled.rtsp(flow)
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.805 then
    if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.09 then
      if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 5.53e-05 then
        -- 1.5 % of the paths: iris-min 0.97, bbr 0.90
        return best(flow, "iris-min")
      else
        if flow.loss <= 0.0357 then
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.43 then
            -- 2.2 % of the paths: bbr 0.91, vivace-latency 0.87
            return best(flow, "bbr")
          else
            -- 1.4 % of the paths: vivace-latency 0.87, proteus-p 0.85
            return best(flow, "vivace-latency")
          end
        else
          if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 12.8 then
            -- 1.0 % of the paths: copa 0.91, bbr 0.89
            return best(flow, "copa")
          else
            -- 2.4 % of the paths: bbr 0.93, vivace-latency 0.88
            return best(flow, "bbr")
          end
        end
      end
    else
      if flow.recent_min_rtt_ms <= 293 then
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.73 then
          if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.47 then
            -- 2.2 % of the paths: copa 0.93, bbr3 0.89
            return best(flow, "copa")
          else
            if flow.recent_min_rtt_ms <= 100 then
              if flow.loss <= 0.0296 then
                -- 1.6 % of the paths: bbr3 0.87, copa 0.84
                return best(flow, "bbr3")
              else
                if flow.recent_min_rtt_ms <= 11.7 then
                  -- 1.0 % of the paths: bbr3 0.86, copa 0.84
                  return best(flow, "bbr3", "copa")
                else
                  if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 9.71 then
                    -- 3.0 % of the paths: copa 0.91, iris-min 0.89
                    return best(flow, "copa")
                  else
                    -- 1.3 % of the paths: bbr 0.85, copa 0.84
                    return best(flow, "bbr", "copa")
                  end
                end
              end
            else
              -- 2.0 % of the paths: bbr 0.76, bbr3 0.75
              return best(flow, "bbr", "bbr3")
            end
          end
        else
          if flow.loss <= 0.028 then
            -- 1.0 % of the paths: bbr3 0.85, copa 0.85
            return best(flow, "bbr3", "copa")
          else
            -- 1.6 % of the paths: vivace-latency 0.90, copa 0.88
            return best(flow, "vivace-latency")
          end
        end
      else
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.92 then
          -- 1.2 % of the paths: bbr 0.91, bbr3 0.85
          return best(flow, "bbr")
        else
          -- 1.2 % of the paths: bbr3 0.78, bbr 0.76
          return best(flow, "bbr3", "bbr")
        end
      end
    end
  else
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 15.5 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 1.67 then
        -- 1.1 % of the paths: copa 0.96, bbr 0.86
        return best(flow, "copa")
      else
        -- 16.4 % of the paths: vivace-latency 0.96, proteus-p 0.95
        return best(flow, "vivace-latency", "proteus-p")
      end
    else
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 183 then
        if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.56 then
          if flow.loss <= 0.000968 then
            -- 6.7 % of the paths: vivace-latency 0.94, proteus-p 0.93
            return best(flow, "vivace-latency", "proteus-p")
          else
            if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.2 then
              -- 8.2 % of the paths: proteus-p 0.96, vivace-latency 0.95, bbr 0.95, iris-min 0.95
              return best(flow, "vivace-latency", "proteus-p", "bbr", "iris-min")
            else
              if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.961 then
                if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.14 then
                  -- 2.9 % of the paths: proteus-p 0.93, vivace-latency 0.93, copa 0.93, bbr 0.92, iris-min 0.91
                  return best(flow, "vivace-latency", "proteus-p", "copa", "bbr", "iris-min")
                else
                  -- 1.8 % of the paths: bbr 0.92, bbr3 0.91
                  return best(flow, "bbr", "bbr3")
                end
              else
                -- 2.6 % of the paths: copa 0.93, proteus-p 0.91, vivace-latency 0.91, bbr 0.90
                return best(flow, "vivace-latency", "copa", "proteus-p", "bbr")
              end
            end
          end
        else
          -- 8.3 % of the paths: vivace-latency 0.90, proteus-p 0.89
          return best(flow, "vivace-latency", "proteus-p")
        end
      else
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000788 then
          -- 16.6 % of the paths: iris-min 0.97, vivace-latency 0.90
          return best(flow, "iris-min")
        else
          if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 796 then
            if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.00291 then
              -- 2.5 % of the paths: iris-min 0.93, bbr 0.91
              return best(flow, "iris-min")
            else
              -- 4.4 % of the paths: vivace-latency 0.91, proteus-p 0.91, iris-min 0.90
              return best(flow, "vivace-latency", "proteus-p", "iris-min")
            end
          else
            -- 3.9 % of the paths: bbr 0.92, vivace-latency 0.92, proteus-p 0.90
            return best(flow, "vivace-latency", "bbr", "proteus-p")
          end
        end
      end
    end
  end
end

-- On the first one, while nothing is known but its round trip.
local beginning = {}

function beginning.bulk(flow)
  if flow.recent_min_rtt_ms <= 117 then
    -- 59.8 % of the paths: bbr 0.98, vivace-loss 0.95
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 476 then
      -- 28.1 % of the paths: bbr 0.96, iris-min 0.89
      return best(flow, "bbr")
    else
      -- 12.1 % of the paths: iris-min 0.92, bbr 0.90
      return best(flow, "iris-min", "bbr")
    end
  end
end

function beginning.dash(flow)
  if flow.recent_min_rtt_ms <= 228 then
    -- 73.4 % of the paths: bbr 0.95, bbr3 0.91
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 657 then
      if flow.recent_min_rtt_ms <= 365 then
        -- 8.8 % of the paths: bbr 0.86, iris-min 0.84
        return best(flow, "bbr", "iris-min")
      else
        -- 11.9 % of the paths: bbr3 0.89, bbr 0.86
        return best(flow, "bbr3")
      end
    else
      -- 5.9 % of the paths: bbr 0.88, bbr3 0.85
      return best(flow, "bbr")
    end
  end
end

function beginning.rtsp(flow)
  if flow.recent_min_rtt_ms <= 110 then
    -- 58.8 % of the paths: vivace-latency 0.91, proteus-p 0.91
    return best(flow, "vivace-latency", "proteus-p")
  else
    -- 41.2 % of the paths: iris-min 0.88, bbr 0.84
    return best(flow, "iris-min")
  end
end

-- The same on a later one: a path that has changed may do so again soon.
local moved = {}

function moved.bulk(flow)
  if flow.recent_min_rtt_ms <= 423 then
    -- 85.2 % of the paths: bbr 0.97, vivace-loss 0.93
    return best(flow, "bbr")
  else
    if flow.recent_min_rtt_ms <= 679 then
      -- 9.6 % of the paths: bbr 0.93, iris-min 0.90
      return best(flow, "bbr")
    else
      -- 5.2 % of the paths: iris-min 0.94, bbr 0.83
      return best(flow, "iris-min")
    end
  end
end

function moved.dash(flow)
  if flow.recent_min_rtt_ms <= 299 then
    if flow.recent_min_rtt_ms <= 236 then
      -- 74.1 % of the paths: bbr 0.95, bbr3 0.91
      return best(flow, "bbr")
    else
      -- 5.2 % of the paths: iris-min 0.89, vivace-loss 0.85
      return best(flow, "iris-min")
    end
  else
    if flow.recent_min_rtt_ms <= 675 then
      -- 15.4 % of the paths: bbr 0.88, iris-min 0.87, bbr3 0.86
      return best(flow, "bbr", "iris-min", "bbr3")
    else
      -- 5.2 % of the paths: iris-min 0.94, copa 0.81
      return best(flow, "iris-min")
    end
  end
end

function moved.rtsp(flow)
  if flow.recent_min_rtt_ms <= 110 then
    -- 58.8 % of the paths: vivace-latency 0.91, proteus-p 0.91
    return best(flow, "vivace-latency", "proteus-p")
  else
    -- 41.2 % of the paths: iris-min 0.88, bbr 0.83
    return best(flow, "iris-min")
  end
end

function select(flow)
  local decide = settled[flow.class]
  if flow.delivered_bytes < 100000 or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0
    or flow.path_age_s < 9 or flow.path_age_s * 1000 < 30 * flow.recent_min_rtt_ms then
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

function test_others_are_left_alone()
  local known = { class = "another", path_age_s = 20, delivered_bytes = 1e6 }
  known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
  assert(select(flow(known)) == nil)
end
