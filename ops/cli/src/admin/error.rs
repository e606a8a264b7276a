//! What can go wrong between a command and an admin listener.

use hyper::StatusCode;

/// Why the admin API did not do what a command asked for. `at` is the address, and where that comes from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminApiError {
    /// The port is closed.
    #[error(
        "nothing listens at {at}: start the program, or give the address of its admin listener with --admin"
    )]
    NotListening {
        /// Where.
        at: String,
    },
    /// The address can't be connected to.
    #[error("can't connect to {at}: {problem}")]
    Unreachable {
        /// Where.
        at: String,
        /// The system's reason.
        problem: String,
    },
    /// No answer in time.
    #[error(
        "no answer from {at} within {seconds} s: the program is overloaded or stopped, or packets are lost"
    )]
    NoAnswer {
        /// Where.
        at: String,
        /// The time-out.
        seconds: u64,
    },
    /// It asks for a token, and the command has no token.
    #[error(
        "{at} asks for a token: name the file that the program has in admin.token_file with --token-file"
    )]
    NoToken {
        /// Where.
        at: String,
    },
    /// It is a listener of another user of this host.
    #[error(
        "a program of user {user} listens at {at}, and may not get the token: only root, the user of this command \
         and users that can read the token file may; if it is the right program, let its user read that file"
    )]
    OtherUser {
        /// Where.
        at: String,
        /// Its user, by name or number.
        user: String,
    },
    /// The user of the listener on this host can't be told.
    #[error(
        "can't tell which user listens at {at}, so that it does not get the token: {problem}; run this command \
         where the program runs, as in its container"
    )]
    UnknownUser {
        /// Where.
        at: String,
        /// Why.
        problem: String,
    },
    /// It does not accept the token.
    #[error(
        "{at} does not accept the token: it must be the one that admin.token_file held when the program \
         started"
    )]
    WrongToken {
        /// Where.
        at: String,
    },
    /// It does not accept the name that it was called by.
    #[error("{at} does not answer to this name: {answer}; or use its IP address in --admin")]
    WrongName {
        /// Where.
        at: String,
        /// Its answer.
        answer: String,
    },
    /// It refused the request for another reason.
    #[error("{at} answers {}: {answer}", .status.as_u16())]
    Refused {
        /// Where.
        at: String,
        /// The status of the answer.
        status: StatusCode,
        /// Its text.
        answer: String,
    },
    /// Another service.
    #[error("{at} is not the admin listener of a Millrace program: {problem}")]
    OtherService {
        /// Where.
        at: String,
        /// What shows it.
        problem: String,
    },
}
