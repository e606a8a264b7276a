--- The counters that all workers share, in the dictionary that nginx.conf calls `qoe`.
local settings = require("settings")
return require("qoe").new(ngx.shared.qoe, {
  max_sessions = settings.max_sessions,
  max_labelled = settings.max_labelled_sessions,
  timeout_s = settings.session_timeout_s,
})
