//! A cap on the rate at which a player gets its video: no more than the player can use (Spang, Kunamalla, Teixeira et
//! al., "Sammy: smoothing video traffic to be a friendly internet neighbor", SIGCOMM 2023).
//!
//! Independent of the congestion controller: a capped flow hands its data to the transport slowly, so that the
//! controller sees an application with little to send.

mod rule;
mod token_bucket;

pub use rule::{MIN_BUFFER, PlayerNeeds, RateCap, Uncapped};
pub use token_bucket::TokenBucket;
