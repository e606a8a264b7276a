//! The sub-command `doctor` of both programs: diagnoses configuration and host problems. It changes
//! nothing and binds no configured port. It makes connections to servers and origins.

mod certificates;
mod destinations;
mod dialled;
mod handshake;
mod origins;
mod port_owners;
mod report;
mod selection;
mod system;

pub use certificates::certificates;
pub use destinations::FixedDestination;
pub use handshake::{HandshakeTarget, reach};
pub use millrace_tunnel::credentials::CertificateOwner;
pub use origins::origins;
pub use port_owners::PortOwners;
pub use report::{CheckVerdict, DoctorArgs, Finding, Report};
pub use selection::selection;
pub use system::{account, bind_privilege, kernel, limits, rtp_ports, sysctl, udp_ports};
