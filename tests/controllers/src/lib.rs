//! Nothing but tests, in `tests/`: the controllers of `millrace-cc` in the simulator. They are no part of that crate,
//! so that building the proxies needs neither the simulator nor its manifest.
