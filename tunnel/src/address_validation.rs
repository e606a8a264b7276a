//! What the token in the first packet of a connection shows (RFC 9000, Section 8.1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use boring::error::ErrorStack;
use millrace_admission::client_id::ClientId;

use crate::known_client::{KnownClient, KnownClients};
use crate::retry::{FirstPacket, Retry, Validation};
use crate::session_tickets::TicketKeys;

/// Both kinds of tokens of a server.
pub(crate) struct AddressValidation {
    retry: Retry,
    known_clients: KnownClients,
    ticket_keys: Arc<TicketKeys>,
}

/// What a token shows; by default nothing, as without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// The client has answered a Retry, which its first packet got.
    pub(crate) retried: Option<FirstPacket>,
    /// The client has been authenticated before.
    pub(crate) known: Option<KnownClient>,
}

impl AddressValidation {
    /// Servers with the same `private_key` take each other's tokens. Tokens for later connections live as long as
    /// session tickets.
    pub(crate) fn new(
        private_key: &[u8],
        ticket_keys: Arc<TicketKeys>,
    ) -> Result<Self, ErrorStack> {
        Ok(Self {
            retry: Retry::new(private_key)?,
            known_clients: KnownClients::new(private_key)?,
            ticket_keys,
        })
    }

    /// The time for which a token for later connections is of use.
    pub(crate) fn lifetime(&self) -> Duration {
        self.ticket_keys.lifetime()
    }

    /// What a client at `from` shows by the token in a packet to `given`; `None` if it can't go on with that token.
    pub(crate) fn check(
        &self,
        token: &[u8],
        from: SocketAddr,
        given: &[u8],
        now_s: u64,
    ) -> Option<Evidence> {
        let known =
            |token: &[u8]| self.known_clients.check(token, from.ip(), now_s, self.lifetime());
        match self.retry.check(token, from, given, now_s) {
            Validation::Invalid => None,
            Validation::Proven(first) => {
                Some(Evidence { known: known(&first.token), retried: Some(first) })
            }
            // One that is of no use counts as none (RFC 9000, Section 8.1.3).
            Validation::Unproven => Some(Evidence { known: known(token), retried: None }),
        }
    }

    /// The token of a Retry.
    pub(crate) fn retry_token(
        &self,
        peer: SocketAddr,
        first: &FirstPacket,
        given: &[u8],
        now_s: u64,
    ) -> Vec<u8> {
        self.retry.token(peer, first, given, now_s)
    }

    /// A token for later connections of a client that is authenticated.
    pub(crate) fn known_client_token(
        &self,
        id: ClientId,
        peer: SocketAddr,
        now_s: u64,
    ) -> Result<Vec<u8>, ErrorStack> {
        self.known_clients.token(id, peer.ip(), now_s)
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::SessionTickets;

    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const LIFETIME: Duration = Duration::from_secs(100);

    fn validation() -> AddressValidation {
        let tickets = SessionTickets { lifetime: LIFETIME, rotation: LIFETIME };
        AddressValidation::new(b"a private key", TicketKeys::new(tickets)).unwrap()
    }

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn client_is_known_on_every_port_until_its_token_expires() {
        let (validation, id) = (validation(), ClientId::of_name("edge"));
        let token = validation.known_client_token(id, peer("198.18.0.1:4000"), NOW_S).unwrap();
        let check = |from, after_s| {
            validation.check(&token, peer(from), b"given", NOW_S + after_s).unwrap()
        };
        for (from, is_at_same_address) in [("198.18.0.1:4001", true), ("198.18.0.2:4000", false)] {
            let known = Some(KnownClient { id, is_at_same_address });
            assert_eq!(check(from, 99), Evidence { retried: None, known });
        }
        assert_eq!(check("198.18.0.1:4000", 100), Evidence::default());
        let foreign = validation.check(b"other", peer("198.18.0.1:4000"), b"given", NOW_S);
        assert_eq!(foreign, Some(Evidence::default()));
    }

    #[test]
    fn client_that_answers_a_retry_stays_known() {
        let (validation, id) = (validation(), ClientId::of_name("edge"));
        let (old, new) = (peer("198.18.0.1:4000"), peer("198.18.0.2:4000"));
        let token = validation.known_client_token(id, old, NOW_S).unwrap();
        for (token, known) in [(token, Some(id)), (Vec::new(), None)] {
            let first = FirstPacket { destination_id: b"12345678".to_vec(), token };
            let token = validation.retry_token(new, &first, b"given", NOW_S);
            let evidence = validation.check(&token, new, b"given", NOW_S).unwrap();
            assert_eq!(evidence.known.map(|known| known.id), known);
            assert_eq!(evidence.retried, Some(first));
            assert_eq!(validation.check(&token, old, b"given", NOW_S), None);
        }
    }
}
