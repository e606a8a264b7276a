-- Learned by learner/ (docs/mcc.md#the-rules-learner): change it by hand, or learn anew.
-- 117767 episodes of 1000 paths; every path counts alike. Held out, seed 1: 0 %.
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

local function bulk(flow)
  if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 523 then
    if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.849 then
      if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 5.98 then
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 2.9 then
          -- 3.3 % of the paths: bbr3 0.98, copa 0.97, iris-min 0.96
          return best(flow, "bbr3", "copa", "iris-min")
        else
          -- 3.6 % of the paths: copa 0.95, bbr3 0.95, bbr 0.95, iris-min 0.94
          return best(flow, "bbr", "copa", "bbr3", "iris-min")
        end
      else
        -- 16.2 % of the paths: bbr 0.95, vivace-loss 0.92
        return best(flow, "bbr")
      end
    else
      -- 56.0 % of the paths: iris-min 0.97, bbr 0.97, vivace-loss 0.95
      return best(flow, "bbr", "iris-min", "vivace-loss")
    end
  else
    if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.00064 then
      if flow.loss <= 0.0225 then
        if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.02 then
          -- 9.1 % of the paths: iris-min 0.99, vivace-latency 0.93
          return best(flow, "iris-min")
        else
          -- 2.0 % of the paths: bbr 0.95, bbr3 0.91
          return best(flow, "bbr")
        end
      else
        -- 2.7 % of the paths: iris-min 0.98, bbr 0.93
        return best(flow, "iris-min")
      end
    else
      -- 7.2 % of the paths: bbr 0.97, vivace-loss 0.92
      return best(flow, "bbr")
    end
  end
end

local function dash(flow)
  if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 507 then
    if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.591 then
      if flow.loss <= 0.00857 then
        if flow.recent_min_rtt_ms <= 335 then
          -- 16.6 % of the paths: bbr3 0.95, iris-min 0.94, copa 0.93, bbr 0.92, proteus-p 0.92, vivace-latency 0.91
          return best(flow, "bbr", "bbr3", "iris-min", "copa", "proteus-p", "vivace-latency")
        else
          -- 2.7 % of the paths: vivace-latency 0.93, proteus-p 0.90
          return best(flow, "vivace-latency")
        end
      else
        if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.13 then
          if flow.recent_min_rtt_ms <= 335 then
            -- 16.6 % of the paths: bbr 0.97, iris-min 0.95
            return best(flow, "bbr")
          else
            -- 1.8 % of the paths: vivace-latency 0.89, vivace-loss 0.87
            return best(flow, "vivace-latency")
          end
        else
          if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.334 then
            if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 5.66 then
              -- 1.1 % of the paths: copa 0.94, bbr3 0.91
              return best(flow, "copa")
            else
              -- 1.8 % of the paths: bbr 0.91, bbr3 0.83
              return best(flow, "bbr")
            end
          else
            -- 26.2 % of the paths: bbr 0.94, copa 0.92, bbr3 0.92
            return best(flow, "bbr", "copa", "bbr3")
          end
        end
      end
    else
      if flow.recent_min_rtt_ms <= 88 then
        -- 3.3 % of the paths: bbr 0.95, bbr3 0.92
        return best(flow, "bbr")
      else
        if flow.recent_min_rtt_ms <= 739 then
          if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.03 then
            -- 1.6 % of the paths: vivace-latency 0.92, vivace-loss 0.91
            return best(flow, "vivace-latency", "vivace-loss")
          else
            -- 6.4 % of the paths: vivace-loss 0.91, bbr 0.89
            return best(flow, "bbr", "vivace-loss")
          end
        else
          -- 1.0 % of the paths: bbr 0.91, vivace-loss 0.78
          return best(flow, "bbr")
        end
      end
    end
  else
    if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.01 then
      if flow.loss <= 0.0168 then
        if flow.recent_min_rtt_ms <= 360 then
          -- 2.7 % of the paths: bbr 0.98, proteus-p 0.97
          return best(flow, "bbr", "proteus-p")
        else
          -- 2.3 % of the paths: vivace-latency 0.95, proteus-p 0.95, bbr3 0.94
          return best(flow, "vivace-latency", "proteus-p", "bbr3")
        end
      else
        -- 2.8 % of the paths: bbr 0.94, iris-min 0.87
        return best(flow, "bbr")
      end
    else
      if flow.loss <= 0.0114 then
        if flow.recent_min_rtt_ms <= 697 then
          if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.472 then
            -- 1.1 % of the paths: proteus-p 0.97, bbr3 0.97, bbr 0.96, vivace-latency 0.95
            return best(flow, "bbr", "proteus-p", "bbr3", "vivace-latency")
          else
            if flow.recent_min_rtt_ms <= 157 then
              -- 2.3 % of the paths: bbr 0.97, proteus-p 0.96
              return best(flow, "bbr", "proteus-p")
            else
              if flow.recent_min_rtt_ms <= 337 then
                -- 1.6 % of the paths: bbr 0.97, bbr3 0.94
                return best(flow, "bbr")
              else
                -- 1.7 % of the paths: vivace-latency 0.92, bbr3 0.91, proteus-p 0.91
                return best(flow, "vivace-latency", "bbr3", "proteus-p")
              end
            end
          end
        else
          -- 1.3 % of the paths: bbr 0.95, bbr3 0.91
          return best(flow, "bbr")
        end
      else
        -- 5.1 % of the paths: bbr 0.93, vivace-loss 0.88
        return best(flow, "bbr")
      end
    end
  end
end

local function rtsp(flow)
  if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.827 then
    if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.09 then
      if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.5 then
        if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1 then
          -- 2.0 % of the paths: iris-min 0.97, bbr 0.91
          return best(flow, "iris-min")
        else
          -- 4.1 % of the paths: bbr 0.92, vivace-latency 0.85
          return best(flow, "bbr")
        end
      else
        -- 3.6 % of the paths: vivace-latency 0.87, proteus-p 0.83
        return best(flow, "vivace-latency")
      end
    else
      if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.68 then
        if flow.loss <= 0.0191 then
          if flow.recent_min_rtt_ms <= 132 then
            -- 1.0 % of the paths: bbr3 0.95, copa 0.94, bbr 0.93
            return best(flow, "bbr3", "copa", "bbr")
          else
            -- 1.1 % of the paths: bbr 0.91, bbr3 0.89
            return best(flow, "bbr")
          end
        else
          -- 2.1 % of the paths: bbr 0.95, bbr3 0.92
          return best(flow, "bbr")
        end
      else
        if flow.mean_delivery_mbps / flow.max_delivery_mbps <= 0.699 then
          -- 9.8 % of the paths: copa 0.84, bbr3 0.83
          return best(flow, "copa", "bbr3")
        else
          -- 3.5 % of the paths: copa 0.81, bbr3 0.81, vivace-latency 0.80, bbr 0.79
          return best(flow, "vivace-latency", "copa", "bbr3", "bbr")
        end
      end
    end
  else
    if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 13.5 then
      if flow.loss <= 0.000935 then
        -- 4.5 % of the paths: vivace-latency 0.99, proteus-p 0.99
        return best(flow, "vivace-latency", "proteus-p")
      else
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 1.95 then
          -- 2.2 % of the paths: copa 0.89, bbr 0.84
          return best(flow, "copa")
        else
          -- 9.8 % of the paths: vivace-latency 0.96, proteus-p 0.96
          return best(flow, "vivace-latency", "proteus-p")
        end
      end
    else
      if flow.loss <= 0.00102 then
        if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000343 then
          -- 12.6 % of the paths: iris-min 0.96, vivace-latency 0.93
          return best(flow, "iris-min")
        else
          -- 10.5 % of the paths: vivace-latency 0.93, proteus-p 0.92
          return best(flow, "vivace-latency", "proteus-p")
        end
      else
        if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 469 then
          if flow.recent_max_rtt_ms / flow.recent_min_rtt_ms <= 1.69 then
            if flow.smoothed_rtt_ms / flow.recent_min_rtt_ms <= 1.12 then
              -- 14.9 % of the paths: proteus-p 0.95, iris-min 0.94, vivace-latency 0.94, bbr 0.94
              return best(flow, "vivace-latency", "proteus-p", "iris-min", "bbr")
            else
              -- 4.6 % of the paths: bbr 0.91, bbr3 0.90
              return best(flow, "bbr", "bbr3")
            end
          else
            -- 3.6 % of the paths: vivace-latency 0.89, proteus-p 0.87
            return best(flow, "vivace-latency", "proteus-p")
          end
        else
          if flow.rtt_variation_ms / flow.recent_min_rtt_ms <= 0.000871 then
            -- 6.7 % of the paths: iris-min 0.98, bbr 0.90
            return best(flow, "iris-min")
          else
            if flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12 <= 897 then
              -- 1.6 % of the paths: bbr 0.94, iris-min 0.91
              return best(flow, "bbr")
            else
              -- 1.9 % of the paths: bbr 0.95, vivace-latency 0.93, proteus-p 0.92
              return best(flow, "vivace-latency", "bbr", "proteus-p")
            end
          end
        end
      end
    end
  end
end

-- The best everywhere, with which a connection begins.
local first = {
  -- bbr 0.96, vivace-loss 0.94
  bulk = "bbr",
  -- bbr 0.93, vivace-latency 0.89
  dash = "bbr",
  -- vivace-latency 0.89, proteus-p 0.87
  rtsp = "vivace-latency",
}

local by_class = { bulk = bulk, dash = dash, rtsp = rtsp }

function select(flow)
  if flow.delivered_bytes < 100000 or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0
    or flow.age_s < 9 or flow.age_s * 1000 < 30 * flow.recent_min_rtt_ms then
    return first[flow.class], "learned: best everywhere"
  end
  local decide = by_class[flow.class]
  if decide then
    return decide(flow)
  end
end

function test_there_is_an_answer_for_every_class()
  for class in pairs(by_class) do
    assert(type(select(flow { class = class })) == "string", class)
    local known = { class = class, age_s = 20, delivered_bytes = 1e6 }
    known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
    assert(type(select(flow(known))) == "string", class)
  end
end

function test_others_are_left_alone()
  local known = { class = "another", age_s = 20, delivered_bytes = 1e6 }
  known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8
  assert(select(flow(known)) == nil)
end
