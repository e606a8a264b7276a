//! Deserialisers that check the bounds of settings.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// Deserialises a value above 0 and below 1.
pub(crate) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match value > 0.0 && value < 1.0 {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not between 0 and 1"))),
    }
}

/// Deserialises a value above 0 and at most 10^6.
pub(crate) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match value > 0.0 && value <= 1e6 {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not above 0 and at most 1000000"))),
    }
}
