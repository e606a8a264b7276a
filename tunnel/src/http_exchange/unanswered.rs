//! A flow that has ended before its client had a response.

use crate::flow_end::FlowEnd;
use crate::flow_label::FlowLabel;
use crate::shared::Admission;
use crate::socket::Socket;

use super::exchange::HttpExchange;

/// A flow whose client is to be told why there is no response.
#[derive(Debug)]
pub struct UnansweredExchange {
    /// The client.
    pub socket: Socket,
    /// For logs.
    pub label: FlowLabel,
    /// Its place among those allowed.
    pub admission: Admission,
    /// Knows how the client takes an answer.
    pub exchange: Box<HttpExchange>,
    /// Why it has ended.
    pub end: FlowEnd,
}
