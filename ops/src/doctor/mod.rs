//! The sub-command `doctor` of both programs: diagnoses configuration and host problems. It changes
//! nothing and binds no configured port.

mod certificates;
mod handshake;
mod report;
mod selection;
mod system;

pub use certificates::certificates;
pub use handshake::{HandshakeTarget, reach};
pub use millrace_tunnel::credentials::CertificateOwner;
pub use report::{CheckVerdict, DoctorArgs, Finding, Report};
pub use selection::selection;
pub use system::{account, bind_privilege, kernel, limits, rtp_ports, sysctl, udp_ports};
