-- Content: all counters for Prometheus.
ngx.header["Content-Type"] = "text/plain; version=0.0.4"
local text = require("qoe_report").prometheus(require("shared_qoe"), ngx.now())
ngx.header["Content-Length"] = #text
ngx.print(text)
