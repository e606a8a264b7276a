//! Address sharing among the workers of a process, to the exclusion of other processes.
//!
//! `SO_REUSEPORT` lets any process of the same user join. So the first worker's socket is bound
//! without it, which fails when a socket of another process has the address, and gets it afterwards;
//! those of the other workers have it from the beginning. Of two processes that start together the
//! kernel lets one bind first.

use std::io;
use std::net::SocketAddr;

use socket2::Socket;

/// Which other sockets may bind the address of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressSharing {
    /// No other socket.
    #[default]
    Alone,
    /// The other workers of this process, later.
    First,
    /// Joins the first worker's.
    Join,
}

impl AddressSharing {
    /// Of the worker `index` of so many.
    pub fn of_worker(index: usize, workers: usize) -> Self {
        match (index, workers) {
            (_, 1) => Self::Alone,
            (0, _) => Self::First,
            _ => Self::Join,
        }
    }

    /// Binds a socket.
    ///
    /// # Errors
    /// As setsockopt(2) and bind(2); `AddrInUse` when another process has the address.
    pub fn bind(self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        if self == Self::Join {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into())?;
        if self == Self::First {
            socket.set_reuse_port(true)?;
        }
        Ok(())
    }

    /// Prepares a socket that was bound elsewhere.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn inherit(self, socket: &Socket) -> io::Result<()> {
        socket.set_reuse_port(self != Self::Alone)
    }
}

/// What to add to an error of bind(2) on an address that was configured.
pub fn bind_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": another process has this address; stop it first, or choose another address"
        }
        io::ErrorKind::AddrNotAvailable => ": this machine does not have the address",
        io::ErrorKind::PermissionDenied => ": a port below 1024 needs CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};

    fn bind(kind: Type, sharing: AddressSharing, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), kind, None)?;
        sharing.bind(&socket, address)?;
        Ok(socket)
    }

    #[test]
    fn workers_join_and_another_process_is_refused() {
        for kind in [Type::DGRAM, Type::STREAM] {
            for any in ["127.0.0.1:0", "[::1]:0"] {
                let of = |index| AddressSharing::of_worker(index, 2);
                let first = bind(kind, of(0), any.parse().expect("an address")).expect("free");
                let address = first.local_addr().expect("bound").as_socket().expect("IP");
                let second = bind(kind, of(1), address).expect("a worker joins");
                for sharing in [of(0), AddressSharing::of_worker(0, 1)] {
                    let refused = bind(kind, sharing, address).expect_err("in use");
                    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{sharing:?}");
                    assert!(bind_advice(&refused).contains("another process"));
                }
                drop((first, second));
                bind(kind, of(0), address).expect("free again");
            }
        }
    }
}
