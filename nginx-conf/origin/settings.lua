--- Settings of the origin's Lua handlers. nginx reads them at start and at reload.
return {
  -- File with the keys that sign access tokens (docs/operate/nginx.md); nil where no location asks for one.
  -- Example: "/etc/millrace/token.keys"
  token_keys = nil,

  -- Playback sessions that are kept, and for how long after they were last heard of. A session takes
  -- about 3 KB of the dictionary `qoe` in nginx.conf.
  max_sessions = 1000,
  session_timeout_s = 300,

  -- Of them, those that have time series of their own in /metrics, about ten each; the others count in the
  -- totals only. Players name their sessions themselves: a larger number lets invented names fill Prometheus.
  max_labelled_sessions = 50,
}
