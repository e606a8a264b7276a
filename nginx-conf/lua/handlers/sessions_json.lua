-- Content: the sessions as JSON.
ngx.header["Content-Type"] = "application/json"
local text = require("qoe_report").json(require("shared_qoe"), ngx.now())
ngx.header["Content-Length"] = #text
ngx.print(text)
