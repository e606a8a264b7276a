--- Common Media Client Data (CMCD), what players say about themselves with each request:
-- CTA-5004 (September 2020), version 1. Both forms, and neither guesses: what is not as specified
-- is refused whole, with a reason.
--
-- No I/O and nothing of nginx.

local cmcd = {}

--- Longest query argument or header that is looked at, in bytes. Players send a few hundred.
cmcd.MAX_BYTES = 2048
--- Most keys in one of them: twice what the specification has.
cmcd.MAX_KEYS = 40
--- Longest `cid`, `sid` and custom value, in characters (CTA-5004, Section 3).
cmcd.MAX_TEXT = 64
--- Longest `nor` and `nrr`: relative URLs and byte ranges.
cmcd.MAX_URL = 1024

--- Why data was refused. For metrics, so that there are few.
cmcd.REASONS = { "too_long", "syntax", "value", "duplicate", "wrong_header", "version" }

local function words(list)
  local set = {}
  for word in list:gmatch("%S+") do
    set[word] = true
  end
  return set
end

-- Reserved keys: header (Section 3.1 names four), type, and for tokens the allowed ones.
local RESERVED = {
  br = { "object", "integer" },
  bl = { "request", "integer" },
  bs = { "status", "boolean" },
  cid = { "session", "string", most = cmcd.MAX_TEXT },
  d = { "object", "integer" },
  dl = { "request", "integer" },
  mtp = { "request", "integer" },
  nor = { "request", "string", most = cmcd.MAX_URL },
  nrr = { "request", "string", most = cmcd.MAX_URL },
  ot = { "object", "token", words("m a v av i c tt k o") },
  -- Section 3.1 has it in CMCD-Session; dash.js and hls.js (common-media-library) write CMCD-Status.
  pr = { "session", "decimal", also = "status" },
  rtp = { "status", "integer" },
  sf = { "session", "token", words("d h s o") },
  sid = { "session", "string", most = cmcd.MAX_TEXT },
  st = { "session", "token", words("v l") },
  su = { "request", "boolean" },
  tb = { "object", "integer" },
  v = { "session", "integer" },
}

-- 15 digits are exact in a double; no bitrate or time needs more.
local function integer(text)
  if text and #text <= 15 and text:find("^%d+$") then
    return tonumber(text)
  end
end

local function decimal(text)
  if text and #text <= 15 and (text:find("^%d+$") or text:find("^%d+%.%d+$")) then
    return tonumber(text)
  end
end

-- True is the bare key. False is left out by players; some write it.
local function boolean(text)
  if text == nil then
    return true
  elseif text == "?0" or text == "false" then
    return false
  end
end

-- Quoted, with \" and \\ for the two characters; nothing but visible ASCII and space.
local function quoted(text, most)
  local inner = text and text:match('^"(.*)"$')
  if not inner or inner:find("[^\32-\126]") then
    return nil
  end
  local bare = inner:gsub('\\[\\"]', "")
  if bare:find('[\\"]') then
    return nil
  end
  local value = inner:gsub('\\([\\"])', "%1")
  if #value <= most then
    return value
  end
end

local function reserved_value(rule, text)
  local kind = rule[2]
  if kind == "integer" then
    return integer(text)
  elseif kind == "decimal" then
    return decimal(text)
  elseif kind == "boolean" then
    return boolean(text)
  elseif kind == "token" then
    return rule[3][text or ""] and text or nil
  end
  return quoted(text, rule.most)
end

-- Custom keys carry a hyphenated prefix. A value may be of any type, at most 64 characters.
local function custom_value(text)
  if text == nil then
    return true
  end
  if text:sub(1, 1) == '"' then
    return quoted(text, cmcd.MAX_TEXT)
  end
  return #text <= cmcd.MAX_TEXT and text:find("^[%w%.%-_:/?*+]+$") and text or nil
end

local function value_of(key, text)
  local rule = RESERVED[key]
  if rule then
    return reserved_value(rule, text)
  elseif key:find("%-") then
    return custom_value(text)
  end
  -- A later version may have reserved it: not an error, and of no use.
  return "", true
end

-- Where the pair that starts at `from` ends: before the next comma outside of quotes.
local function pair_end(text, from)
  local in_quotes, escaped = false, false
  for at = from, #text do
    local c = text:byte(at)
    if escaped then
      escaped = false
    elseif in_quotes and c == 92 then
      escaped = true
    elseif c == 34 then
      in_quotes = not in_quotes
    elseif c == 44 and not in_quotes then
      return at - 1
    end
  end
  if in_quotes then
    return nil
  end
  return #text
end

-- Reads one comma-separated list into `data`. `header` is the one that it came in, if any.
local function read(data, text, header)
  if #text > cmcd.MAX_BYTES then
    return nil, "too_long"
  end
  local from, keys = 1, 0
  while from <= #text + 1 do
    local to = pair_end(text, from)
    keys = keys + 1
    if not to or keys > cmcd.MAX_KEYS then
      return nil, to and "too_long" or "syntax"
    end
    -- Spaces beside commas are what joined headers have.
    local pair = text:sub(from, to):match("^ *(.-) *$")
    local key, equals, value = pair:match("^([%w%.%-_]+)(=?)(.*)$")
    if not key or (equals == "" and value ~= "") or (equals == "=" and value == "") then
      return nil, "syntax"
    end
    local rule = RESERVED[key]
    if header and rule and rule[1] ~= header and rule.also ~= header then
      return nil, "wrong_header"
    end
    if data[key] ~= nil then
      return nil, "duplicate"
    end
    local parsed, unknown = value_of(key, equals == "=" and value or nil)
    if parsed == nil then
      return nil, "value"
    end
    if not unknown then
      data[key] = parsed
    end
    from = to + 2
  end
  return data
end

local function checked(data, reason)
  if data and data.v and data.v ~= 1 then
    return nil, "version"
  end
  return data, reason
end

--- Reads the value of the query argument `CMCD`, already percent-decoded.
-- @return a table of values by key, or nil and one of cmcd.REASONS
function cmcd.parse_query(text)
  return checked(read({}, text))
end

--- Reads headers: `headers.object` is the value of CMCD-Object, and so on for `request`, `session`
-- and `status`. Those that are not there are nil.
-- @return a table of values by key, or nil and one of cmcd.REASONS
function cmcd.parse_headers(headers)
  local data = {}
  for _, name in ipairs({ "object", "request", "session", "status" }) do
    if headers[name] then
      local read_data, reason = read(data, headers[name], name)
      if not read_data then
        return nil, reason
      end
    end
  end
  return checked(data)
end

return cmcd
