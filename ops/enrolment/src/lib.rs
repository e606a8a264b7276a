//! Enrolment of clients. An operator invites a client at the server, which makes a token; with it the client gets a
//! certificate from the server's enrolment listener, and renews it there later.
//!
//! - [`Invites`]: the open invitations, files in the directory of the authority.
//! - [`EnrolmentService`]: what is issued, to whom. [`EnrolmentListener`]: its TCP listener, TLS 1.3.
//! - [`enrol`] and [`renew`]: the client's side. [`RenewalTask`]: renews in time while a program runs.
//!
//! Messages and tokens are in `millrace_wire::enrolment`. A client trusts the server because its certificate comes from
//! the authority whose fingerprint the token has, or, for renewals, from the authority that it has already. The server
//! trusts a client because of the secret in the token, or because of its current certificate.

mod attempts;
mod client;
mod deadline_stream;
mod exchange;
mod invites;
mod listener;
mod new_config;
mod open_invitations;
mod pinned;
mod renewal;
mod server_certificate;
mod service;
mod signing_request;
#[cfg(test)]
mod tests;

pub use client::{ClientSide, EnrolledClient, EnrolmentFailure, enrol, renew};
pub use invites::{Invite, InviteError, Invites, NewInvite};
pub use listener::{EnrolmentListener, bind};
pub use new_config::{ensure_absent, prepare_directory, toml_string, write_config};
pub use open_invitations::OpenInvitations;
pub use renewal::{RenewalSchedule, RenewalTask, counted};
pub use server_certificate::renew_server_certificate;
pub use service::EnrolmentService;
pub use signing_request::SigningKey;
