//! The users of this host whose programs may be shown the admin token.
//!
//! While the program is down, any user of the host can listen at its address. The token goes to a listener on this host only
//! if its user can read the token anyway.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millrace_config::AdminToken;
use nix::unistd::{Gid, Uid, User, geteuid, getgrouplist};
use procfs::net::{self, TcpState};

/// The users that may be shown a token: root, that of this process, and those that can read its file.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenUsers {
    users: BTreeSet<u32>,
    group: Option<u32>,
}

/// The listening sockets that take connections to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalListeners {
    /// User and inode of each.
    sockets: BTreeSet<(u32, u64)>,
}

impl TokenUsers {
    pub(crate) fn of(token: &AdminToken) -> Self {
        let users = [0, geteuid().as_raw(), token.owner()].into();
        Self { users, group: token.group() }
    }

    fn includes(&self, user: u32) -> bool {
        self.users.contains(&user) || self.group.is_some_and(|group| is_member(user, group))
    }
}

impl LocalListeners {
    /// Those that the kernel chooses for connections to `address`: an exact address goes before all addresses of a family,
    /// and IPv4 before IPv6. None if `address` is not on this host.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub(crate) fn at(address: SocketAddr) -> Result<Self, procfs::ProcError> {
        // Without IPv6 there is no such file.
        let entries = net::tcp()?.into_iter().chain(net::tcp6().unwrap_or_default());
        let listening = entries.filter(|entry| entry.state == TcpState::Listen);
        let sockets: Vec<_> =
            listening.map(|entry| (entry.local_address, (entry.uid, entry.inode))).collect();
        let ip = address.ip().to_canonical();
        let families = match ip {
            IpAddr::V4(_) => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            IpAddr::V6(_) => vec![IpAddr::from(Ipv6Addr::UNSPECIFIED)],
        };
        let bound_to = |wanted: IpAddr| {
            let is_it = move |local: &SocketAddr| {
                local.port() == address.port() && local.ip().to_canonical() == wanted
            };
            let found = sockets.iter().filter(move |(local, _)| is_it(local));
            found.map(|(_, socket)| *socket).collect::<BTreeSet<_>>()
        };
        let mut chosen = std::iter::once(ip).chain(families).map(bound_to);
        Ok(Self { sockets: chosen.find(|sockets| !sockets.is_empty()).unwrap_or_default() })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// A user that is not among `users`.
    pub(crate) fn stranger(&self, users: &TokenUsers) -> Option<u32> {
        self.sockets.iter().map(|(user, _)| *user).find(|user| !users.includes(*user))
    }
}

/// A user as an error names it.
pub(crate) fn user_name(user: u32) -> String {
    match User::from_uid(Uid::from_raw(user)) {
        Ok(Some(account)) => account.name,
        _ => user.to_string(),
    }
}

/// Whether the account database has a user in a group.
fn is_member(user: u32, group: u32) -> bool {
    let Ok(Some(User { name, gid, .. })) = User::from_uid(Uid::from_raw(user)) else {
        return false;
    };
    let Ok(name) = CString::new(name) else { return false };
    getgrouplist(&name, gid).is_ok_and(|groups| groups.contains(&Gid::from_raw(group)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn listen(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn users_are_those_that_can_read_the_token() {
        let users = TokenUsers { users: [0, 1000].into(), group: None };
        assert!(users.includes(0) && users.includes(1000) && !users.includes(1001));
        // Group 0 has root as a member, and the account with the ID 65534 is not in it.
        let users = TokenUsers { users: BTreeSet::new(), group: Some(0) };
        assert!(users.includes(0) && !users.includes(65_534));
        assert!(!users.includes(u32::MAX - 7), "a user without an account");
    }

    #[test]
    fn the_listener_of_an_exact_address_is_found_before_that_of_all() {
        let (exact, address) = listen("127.0.0.1:0");
        let own = LocalListeners::at(address).unwrap();
        assert_eq!(own.sockets.len(), 1);
        assert_eq!(
            own.stranger(&TokenUsers { users: [geteuid().as_raw()].into(), group: None }),
            None
        );
        assert_eq!(own.stranger(&TokenUsers::default()), Some(geteuid().as_raw()));
        let elsewhere = LocalListeners::at(([127, 0, 0, 2], address.port()).into()).unwrap();
        assert!(elsewhere.is_empty());
        drop(exact);
        assert!(LocalListeners::at(address).unwrap().is_empty());
        // At the same address, and another socket.
        let (_again, _) = listen(&address.to_string());
        let again = LocalListeners::at(address).unwrap();
        assert!(!again.is_empty() && again != own);

        let (_all, address) = listen("0.0.0.0:0");
        assert!(!LocalListeners::at(([127, 0, 0, 2], address.port()).into()).unwrap().is_empty());
    }

    /// A listener of IPv6 takes connections over IPv4 too, unless it is told not to.
    #[test]
    fn a_listener_of_all_ipv6_addresses_may_be_the_one_of_ipv4() {
        let Ok(all) = TcpListener::bind("[::]:0") else { return };
        let port = all.local_addr().unwrap().port();
        assert!(!LocalListeners::at(([127, 0, 0, 1], port).into()).unwrap().is_empty());
    }
}
