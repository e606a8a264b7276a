//! Rate control by experiment: PCC Allegro (NSDI '15), Vivace (NSDI '18), Proteus (SIGCOMM '20).
//!
//! Time is cut into monitor intervals of about one round trip, each at a rate of its own. What
//! comes back of an interval's packets makes one number, its utility; the rate follows the
//! direction in which utility grows.
//!
//! - `members`: the algorithms; each is a utility and a few settings.
//! - `config`: the settings.
//! - `monitor_interval`: which packets an interval has, and what became of them.
//! - `noise`: what of an interval's RTTs is signal.
//! - `utility`: what each member strives for.
//! - `start_up`, `gradient`, `fixed_step`: from outcomes to the next rate.
//! - `pipelined`: a start-up for long RTTs, from acknowledgements as they come.
//! - `rate_control`: which intervals are needed next; runs one of these three.
//! - `restart`: trains of packets that ask what the path carries by now.
//! - `controller`: all of it behind [`Controller`](crate::Controller).

mod config;
mod controller;
mod fixed_step;
mod gradient;
mod least_rtt;
mod members;
mod monitor_interval;

mod noise;
mod pipelined;
mod policy;
mod rate_control;
mod restart;
mod start_up;
mod utility;

pub use config::{NoiseFilter, PccConfig, StartUpKind, Steps};
pub(crate) use members::ENTRIES;
pub use members::{
    ALLEGRO, ALLEGRO_LATENCY, PROTEUS_H, PROTEUS_P, PROTEUS_S, VIVACE_LATENCY, VIVACE_LOSS,
    VIVACE_LTE, VIVACE_WEIGHTED,
};
pub use utility::Utility;
