//! What a flow has to do with RTSP.

use super::RtspFlow;
use super::candidate::{RtspCandidate, Verdict};
use crate::socket::Socket;

/// Whether a flow is followed.
#[derive(Debug, Default)]
pub(crate) enum FlowRtsp {
    /// Its bytes pass unseen.
    #[default]
    Unseen,
    /// The player's first bytes will tell.
    Candidate(Box<RtspCandidate>),
    /// Its messages are followed.
    Followed(Box<RtspFlow>),
}

/// The side of a flow that bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Socket,
    Stream,
}

impl FlowRtsp {
    /// Whether its messages are followed.
    pub(crate) fn is_followed(&self) -> bool {
        matches!(self, Self::Followed(_))
    }

    /// What follows its messages, if they are followed.
    pub(crate) fn followed_mut(&mut self) -> Option<&mut RtspFlow> {
        match self {
            Self::Followed(followed) => Some(followed),
            Self::Unseen | Self::Candidate(_) => None,
        }
    }

    /// The server follows RTSP too.
    pub(crate) fn agree(&mut self) {
        match self {
            Self::Unseen => {}
            Self::Candidate(candidate) => candidate.agree(),
            Self::Followed(followed) => followed.agree(),
        }
    }

    /// Takes what the flow's socket brought; what goes to the stream instead, if that is something else.
    pub(crate) fn socket_brought(&mut self, bytes: &[u8], socket: &Socket) -> Option<Vec<u8>> {
        self.brought(Source::Socket, bytes, socket)
    }

    /// Takes what the stream brought; what goes to the socket instead, if that is something else.
    pub(crate) fn stream_brought(&mut self, bytes: &[u8], socket: &Socket) -> Option<Vec<u8>> {
        self.brought(Source::Stream, bytes, socket)
    }

    /// The socket has ended: what was held of it.
    pub(crate) fn end_of_socket(&mut self) -> Vec<u8> {
        self.followed_mut().map_or_else(Vec::new, RtspFlow::end_of_socket)
    }

    /// The stream has ended: what was held of it.
    pub(crate) fn end_of_stream(&mut self) -> Vec<u8> {
        self.followed_mut().map_or_else(Vec::new, RtspFlow::end_of_stream)
    }

    fn brought(&mut self, source: Source, bytes: &[u8], socket: &Socket) -> Option<Vec<u8>> {
        match self {
            Self::Unseen => None,
            Self::Followed(followed) => Some(followed.brought(source, bytes)),
            Self::Candidate(candidate) => {
                if candidate.has_player_at_socket() != (source == Source::Socket) {
                    return None;
                }
                let verdict = candidate.take(bytes);
                if verdict == Verdict::Undecided {
                    return None;
                }
                let Self::Candidate(candidate) = std::mem::take(self) else { return None };
                let Verdict::Rtsp(passed) = verdict else { return None };
                let mut followed = candidate.follow(socket)?;
                let (first, rest) = bytes.split_at(passed);
                let out = [first, &followed.brought(source, rest)].concat();
                *self = Self::Followed(followed);
                Some(out)
            }
        }
    }
}

impl RtspFlow {
    fn brought(&mut self, source: Source, bytes: &[u8]) -> Vec<u8> {
        match source {
            Source::Socket => self.socket_brought(bytes),
            Source::Stream => self.stream_brought(bytes),
        }
    }
}

#[cfg(test)]
#[path = "flow_rtsp_tests.rs"]
mod tests;
