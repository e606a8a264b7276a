//! The lab of Millrace: an emulated bottleneck between network namespaces, and the experiments over it.
//!
//! - [`emulator`], a crate of its own: the link.
//! - [`netns`], [`veth`], [`process`]: namespaces, interfaces and processes that remove themselves.
//! - [`topology`], [`proxies`]: player, client edge, link, server edge and origin, joined; the two
//!   proxies.
//! - [`player`], [`site`]: a real player in a browser, and the web server that it plays from.
//! - [`calibrate`]: traffic with known properties, to check the emulated link.
//! - [`host`], [`http`], [`interrupt`], [`step`], [`run`], [`clean`]: processor load, readiness, Ctrl-C,
//!   progress, the files of a run and their removal.
//! - [`checkout`], [`traces`]: files that commands need from any directory, and recorded links.
//! - [`scenario`]: files with the settings of runs and the claims about their results.
//! - [`simulate`], [`emulate`]: scenarios in virtual time, and with real packets.
//! - [`dataset`]: the training set of the Rules Learner.
//! - [`runner`], [`measure`], [`results`]: all runs of a scenario, the figures of each, and the result
//!   files.
//! - [`frames`]: the frames on the players' screens, drawn after the runs.
//! - [`report`]: one page with the figures and claims of many runs.
//! - [`demo`]: the same video over plain TCP and through Millrace.
//! - [`cli`], `output`: the commands of `millrace-lab`, and what they print.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod calibrate;
pub mod checkout;
pub mod clean;
pub mod cli;
pub mod dataset;
pub mod demo;
pub mod emulate;
pub mod frames;
pub mod host;
pub mod http;
pub mod interrupt;
pub mod measure;
pub mod netns;
mod output;
pub mod peer_setup;
pub mod player;
pub mod process;
mod progress;
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

pub use millrace_emulator as emulator;
