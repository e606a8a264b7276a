//! The lab of Millrace: an emulated bottleneck between network namespaces, and what runs over it.
//!
//! - [`emulator`]: the link. Its logic is pure and exact in virtual time; a driver thread moves
//!   real frames through it.
//! - [`netns`], [`veth`], [`process`]: namespaces, interfaces and processes that remove themselves.
//! - [`topology`], [`proxies`]: player, client edge, link, server edge and origin, joined; the two
//!   proxies.
//! - [`player`], [`site`]: a real player in a browser, and the web server that it plays from.
//! - [`calibrate`]: traffic with known properties, to find out whether the link is right.
//! - [`host`], [`http`], [`interrupt`], [`step`], [`run`], [`clean`]: how busy the machine is, readiness
//!   by asking, the end by Ctrl-C, progress, and what a run leaves.
//! - [`scenario`]: files that say what to run and what is claimed of it.
//! - [`simulate`], [`emulate`]: scenarios in virtual time, and with real packets.
//! - [`grid`]: what each algorithm makes of many paths, for the Rules Learner.
//! - [`runner`], [`measure`], [`results`]: all runs of a scenario, the figures of each, and what they
//!   leave.
//! - [`pictures`]: what was on the players' screens, drawn again after the runs.
//! - [`report`]: one page with the figures and claims of many runs.
//! - [`demo`]: the same video over plain TCP and through Millrace.

pub mod calibrate;
pub mod clean;
pub mod demo;
pub mod emulate;
pub mod emulator;
pub mod grid;
pub mod host;
pub mod http;
pub mod interrupt;
pub mod measure;
pub mod netns;
pub mod pictures;
pub mod player;
pub mod process;
pub mod proxies;
pub mod report;
pub mod results;
pub mod rtsp;
pub mod run;
pub mod runner;
pub mod scenario;
pub mod simulate;
pub mod site;
pub mod step;
pub mod tcp_info;
pub mod topology;
pub mod traces;
pub mod veth;
