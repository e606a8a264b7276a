//! Rate control by experiment: PCC Allegro (NSDI '15), Vivace (NSDI '18), Proteus (SIGCOMM '20).
//!
//! Time is divided into monitor intervals of about one round trip, each at a rate of its own. The
//! outcome of an interval's packets gives one number, its utility. The rate follows the direction in
//! which utility grows.
//!
//! - `members`: the algorithms; each is a utility and a few settings.
//! - `config`: the settings.
//! - `monitor_interval`: the packets of an interval and their outcome.
//! - `noise`, `rtt_floors`: noise filters for an interval's RTTs.
//! - `utility`: the objective of each member.
//! - `start_up`, `gradient`, `fixed_step`: from outcomes to the next rate.
//! - `probe_pair`, `ascent`: from two outcomes to a gradient, and from a gradient to a step.
//! - `app_rate`: what a sender that runs out of data sends its bursts at.
//! - `pipelined`, `growth_window`: a start-up that follows single acknowledgements.
//! - `rate_control`: schedules intervals and passes their outcomes to `start_up`, `gradient` or `fixed_step`.
//! - `bandwidth_probe`: packet trains that probe the available capacity.
//! - `path_window`: bounds of the bytes in flight, by the path and its buffer.
//! - `base_rtt`: the path's RTT without a queue.
//! - `controller`: the [`Controller`](crate::Controller) of the family.

mod app_rate;
mod ascent;
mod bandwidth_probe;
mod base_rtt;
mod config;
mod controller;
mod factory;
mod fixed_step;
mod gradient;
mod growth_window;
mod members;
mod monitor_interval;
mod noise;
mod path_window;
mod pipelined;
mod policy;
mod probe_pair;
mod rate_control;
mod rtt_floors;
mod start_up;
mod utility;

pub use config::{NoiseFilter, PccConfig, StartUpKind, Steps};
pub(crate) use members::ENTRIES;
pub use members::{
    ALLEGRO, ALLEGRO_LATENCY, PROTEUS_H, PROTEUS_P, PROTEUS_S, VIVACE_LATENCY, VIVACE_LOSS,
    VIVACE_LTE, VIVACE_WEIGHTED,
};
pub use utility::Utility;
