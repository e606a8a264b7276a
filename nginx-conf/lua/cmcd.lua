--- Common Media Client Data (CMCD), what players say about themselves with each request: CTA-5004
-- (September 2020), and version 2 (CTA-5004-B, April 2026) in requests. A malformed key is ignored, and no
-- other key with it. tunnel/wire/src/cmcd.rs reads the same; tests/data/cmcd.json has the cases of both.
--
-- No I/O and nothing of nginx.

local cmcd = {}

--- Longest query argument or header that is read, in bytes. Players send a few hundred; lists of next
-- objects (`nor`) may be longer.
cmcd.MAX_BYTES = 4096
--- Most keys that are read of one of them: twice what version 2 has for requests.
cmcd.MAX_KEYS = 80
--- Highest version that is read.
cmcd.MAX_VERSION = 2
--- Longest `sid`, in characters (CTA-5004-B, Table 1).
cmcd.MAX_SESSION = 64
--- Longest `cid`, in characters (CTA-5004-B, Table 1; 64 in version 1).
cmcd.MAX_CONTENT = 128

--- Why a key or a report is ignored. For metrics, so that there are few.
--
-- * `syntax`: no key, or a malformed string
-- * `value`: the value is not one that the key may have
-- * `duplicate`: the key comes again; the last one counts (RFC 8941, Section 3.2)
-- * `too_long`: MAX_BYTES, of which nothing is read, or MAX_KEYS, of which the others are not read
-- * `version`: the report has a higher version, and is ignored whole (CTA-5004-B, Section 6)
cmcd.REASONS = { "syntax", "value", "duplicate", "too_long", "version" }

local function words(list)
  local set = {}
  for word in list:gmatch("%S+") do
    set[word] = true
  end
  return set
end

local OBJECT_TYPES = words("m a v av i c tt k o")

-- The keys that are used, with the type of their values. `figures` are a figure, as in version 1, or a
-- list with one for each object type, as in version 2.
local KEYS = {
  ab = { "figures" },
  bl = { "figures" },
  br = { "figures" },
  bs = { "flag" },
  cid = { "content" },
  d = { "integer" },
  mtp = { "figures" },
  ot = { "token", OBJECT_TYPES },
  rtp = { "integer" },
  sf = { "token", words("d h e s o") },
  sid = { "session" },
  st = { "token", words("v l ll") },
  su = { "flag" },
  tab = { "figures" },
  tb = { "figures" },
  v = { "integer" },
}

-- A multi-byte character of UTF-8 that is no control character, or nothing (RFC 3629, Section 4).
local function character_beyond_ascii(text, at)
  local first, second = text:byte(at, at + 1)
  local length = first >= 0xf0 and 4 or first >= 0xe0 and 3 or 2
  if first < 0xc2 or first > 0xf4 or not second then
    return nil
  end
  local low = ({ [0xc2] = 0xa0, [0xe0] = 0xa0, [0xf0] = 0x90 })[first] or 0x80
  local high = ({ [0xed] = 0x9f, [0xf4] = 0x8f })[first] or 0xbf
  local character = text:match("^." .. ("[\128-\191]"):rep(length - 1), at)
  if character and second >= low and second <= high then
    return character
  end
end

-- The string at `at`, where it ends, and how many characters it has; nothing if it is malformed.
local function string_at(text, at)
  local parts, characters = {}, 0
  at = at + 1
  while true do
    local plain = text:match('^[^%c"\\\128-\255]+', at)
    local part = plain or text:match('^\\([\\"])', at)
    if part then
      at = at + (plain and #plain or 2)
      characters = characters + #part
    elseif text:byte(at) == 34 then
      return table.concat(parts), at + 1, characters
    else
      part = (text:byte(at) or 0) >= 128 and character_beyond_ascii(text, at)
      if not part then
        return nil
      end
      at = at + #part
      characters = characters + 1
    end
    parts[#parts + 1] = part
  end
end

-- The item at `at` without its parameters, its type, and where it ends (RFC 8941, Section 4.2.3.1).
local function bare_at(text, at)
  if text:byte(at) == 34 then
    local value, after, characters = string_at(text, at)
    return value, "string", after, characters
  end
  local flag = text:match("^%?[01]", at)
  if flag then
    return flag == "?1", "flag", at + 2
  end
  local token = text:match("^[%a*][%w!#$%%&'*+%-.^_`|~:/]*", at)
  if token then
    return token, "token", at + #token
  end
  local binary = text:match("^:[%w+/=]*:", at)
  if binary then
    return binary, "binary", at + #binary
  end
  local decimal = text:match("^%-?%d+%.%d+", at)
  if decimal then
    local whole, part = decimal:match("(%d+)%.(%d+)")
    if #whole <= 12 and #part <= 3 then
      return decimal, "decimal", at + #decimal
    end
    return nil
  end
  local integer = text:match("^%-?%d+", at)
  -- 15 digits are exact in a double.
  if integer and #integer:gsub("%-", "") <= 15 then
    return tonumber(integer), "integer", at + #integer
  end
end

-- The item at `at` with its parameters: `value`, `kind`, `characters`, `parameters`; and where it ends.
local function item_at(text, at)
  local value, kind, after, characters = bare_at(text, at)
  if value == nil then
    return nil
  end
  local parameters = {}
  while text:byte(after) == 59 do
    local key, next_at = text:match("^; *([%l*][%l%d_%-.*]*)()", after)
    if not key then
      return nil
    end
    local parameter = true
    if text:byte(next_at) == 61 then
      local _
      parameter, _, next_at = bare_at(text, next_at + 1)
      if parameter == nil then
        return nil
      end
    end
    parameters[key], after = parameter, next_at
  end
  return { value = value, kind = kind, characters = characters, parameters = parameters }, after
end

-- The whole of `text` as a list of items: those of an inner list, or a single one.
local function items_of(text)
  if text:byte(1) ~= 40 then
    local item, after = item_at(text, 1)
    return item and after == #text + 1 and { item } or nil
  end
  local items, at = {}, 2
  while true do
    at = text:match("^ *()", at)
    if text:byte(at) == 41 then
      -- Parameters of the list are read, and of no use.
      local rest = "a" .. text:sub(at + 1)
      local item, after = item_at(rest, 1)
      return item and item.value == "a" and after == #rest + 1 and items or nil
    end
    local item, after = item_at(text, at)
    if not item or not text:find("^[ )]", after) then
      return nil
    end
    items[#items + 1], at = item, after
  end
end

local function is_figure(item)
  return item.kind == "integer" and item.value >= 0
end

-- The figures and their object types; nothing if one is no figure, or there is none.
local function figures_of(items)
  for _, item in ipairs(items) do
    if not is_figure(item) then
      return nil
    end
    item.object_types = {}
    for object_type in pairs(OBJECT_TYPES) do
      if item.parameters[object_type] == true then
        item.object_types[object_type] = true
      end
    end
  end
  return items[1] and items
end

-- The value that follows a key: nothing, parameters, or `=` and a value. Nothing if the key may not have it.
local function value_of(rule, rest)
  local kind = rule[1]
  local text = rest:sub(1, 1) == "=" and rest:sub(2) or "?1" .. rest
  local items = items_of(text:match("^ *(.-)$"))
  if not items then
    return nil
  elseif kind == "figures" then
    return figures_of(items)
  end
  local item = items[1]
  if text:find("^ *%(") then
    return nil
  elseif kind == "integer" then
    return is_figure(item) and item.value or nil
  elseif kind == "token" then
    return item.kind == "token" and rule[2][item.value] and item.value or nil
  elseif kind == "flag" then
    if item.kind == "flag" then
      return item.value
    end
  elseif item.kind ~= "string" then
    return nil
  elseif kind == "session" then
    -- ASCII, as the specification has it. Players send titles in `cid`.
    local fits = #item.value > 0 and #item.value <= cmcd.MAX_SESSION
    return fits and not rest:find("[\128-\255]") and item.value or nil
  elseif item.characters <= cmcd.MAX_CONTENT then
    return item.value
  end
end

-- Where the string that begins at `at` ends: the place of its last quote, or nothing if it is malformed.
local function string_end(text, at)
  while true do
    at = text:find("[\"\\%c]", at + 1)
    if not at or text:find("^[^\"\\]", at) then
      return nil
    elseif text:byte(at) == 34 then
      return at
    elseif not text:find('^\\[\\"]', at) then
      return nil
    end
    at = at + 1
  end
end

-- Where the first comma outside of strings is, from `from` on, or the end. Nothing if a string is malformed.
local function member_end(text, from)
  local at = from
  while true do
    at = text:find('[,"]', at)
    if not at then
      return #text + 1
    elseif text:byte(at) == 44 then
      return at
    end
    -- After `%`: display strings (RFC 9651, Section 3.3.8), which CMCD does not have.
    local opens = at > from and text:find("^[=(%% \t]", at - 1)
    at = opens and string_end(text, at)
    if not at or text:find("^[^,;) \t]", at + 1) then
      return nil
    end
    at = at + 1
  end
end

local function ignore(ignored, reason, key)
  ignored[#ignored + 1] = { key = key or "", reason = reason }
end

local function read_member(values, ignored, member)
  local key, rest = member:match("^[ \t]*([%w_%-.*]+)(.-)[ \t]*$")
  if not key or not rest:find("^[=;]") and rest ~= "" then
    return ignore(ignored, "syntax")
  end
  local rule = KEYS[key]
  if not rule then
    return
  end
  local value = value_of(rule, rest)
  if value == nil then
    ignore(ignored, "value", key)
  end
  if values[key] then
    ignore(ignored, "duplicate", key)
  end
  values[key] = { value = value }
end

-- Reads one comma-separated list. Players write titles without escaping quotes: after a malformed string,
-- reading goes on after the first comma of the key that has it.
local function read(values, ignored, text)
  if #text > cmcd.MAX_BYTES then
    return ignore(ignored, "too_long")
  elseif not text:find("[^ \t]") then
    return
  end
  local from, keys = 1, 0
  repeat
    keys = keys + 1
    if keys > cmcd.MAX_KEYS then
      return ignore(ignored, "too_long")
    end
    local to = member_end(text, from)
    if to then
      read_member(values, ignored, text:sub(from, to - 1))
    else
      ignore(ignored, "syntax")
      to = text:find(",", from, true) or #text + 1
    end
    from = to + 1
  until to > #text
end

-- The figure for the object that is requested. Requests for manifests and keys have figures of what is
-- played: video first. A figure without an object type is for all of them.
local function figure_for(object_type, figures)
  for _, wanted in ipairs({ object_type or "", "", "av", "v", "a" }) do
    for _, figure in ipairs(figures) do
      if wanted == "" and not next(figure.object_types) or figure.object_types[wanted] then
        return figure.value
      end
    end
  end
  return figures[1].value
end

-- The values by key, figures for the object that is requested. Without any, an empty table.
local function report_of(values, ignored)
  local data = {}
  for key, read_value in pairs(values) do
    data[key] = read_value.value
  end
  if data.v and data.v > cmcd.MAX_VERSION then
    ignore(ignored, "version", "v")
    return {}
  end
  for key, rule in pairs(KEYS) do
    if rule[1] == "figures" and data[key] then
      data[key] = figure_for(data.ot, data[key])
    end
  end
  -- Aggregates are sent where the tracks' own bitrates are not known.
  data.br, data.tb, data.ab, data.tab = data.br or data.ab, data.tb or data.tab, nil, nil
  return data
end

local function decoded(value)
  return (value:gsub("+", " "):gsub("%%(%x%x)", function(digits)
    return string.char(tonumber(digits, 16))
  end))
end

--- Reads the argument `CMCD` of a query string, as it came.
-- @return a table of values by key, and a list of what was ignored, with `key` and `reason`; nothing if
-- there is no such argument
function cmcd.parse_query(query)
  -- The name is case-sensitive (CTA-5004-B, Section 3.2).
  local value = ("&" .. query):match("&CMCD=([^&]*)")
  if not value then
    return nil
  end
  local values, ignored = {}, {}
  if #value > 3 * cmcd.MAX_BYTES then
    ignore(ignored, "too_long")
  else
    read(values, ignored, decoded(value))
  end
  return report_of(values, ignored), ignored
end

--- Reads headers: `headers.object` is the value of CMCD-Object, and so on for `request`, `session`
-- and `status`; a list of values if there are several. Those that are not there are nil.
-- @return a table of values by key, and a list of what was ignored, with `key` and `reason`
function cmcd.parse_headers(headers)
  local values, ignored = {}, {}
  for _, name in ipairs({ "object", "request", "session", "status" }) do
    local fields = headers[name] or {}
    for _, text in ipairs(type(fields) == "table" and fields or { fields }) do
      read(values, ignored, text)
    end
  end
  return report_of(values, ignored), ignored
end

return cmcd
