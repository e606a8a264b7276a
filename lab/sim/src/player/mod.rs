//! A player of DASH on demand in virtual time, with the rules and constants of dash.js 5.2.1 as the lab's page configures
//! it (`player/page/options.ts`). `docs/research/virtual-player.md` says what is modelled and what is not.

mod abandonment;
mod bola;
mod delays;
mod download;
mod insufficient_buffer;
mod ladder;
mod outcome;
mod playback;
mod recorded_sizes;
mod reported_needs;
mod rung_choice;
mod rung_selector;
mod setup;
mod switch_history;
mod throughput;
mod virtual_player;

pub(crate) use delays::REQUEST_DELAY;
pub use ladder::{BitrateLadder, LadderRung};
pub use outcome::{PlayerOutcome, PlayerSample};
pub use setup::{BitrateStrategy, PlayerSetup};
pub(crate) use virtual_player::{PlayerAction, VirtualPlayer};
