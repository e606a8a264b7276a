//! Groups of flows that share connections: flows of one class and one congestion control.

use std::net::SocketAddr;

use millrace_cc::registry::{self, Algorithm};
use millrace_config::{Class, ClassOfPorts, Listen, TransportConfig};
use millrace_tunnel::algorithms::{Algorithms, CcPolicy};
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_wire::Destination;
use millrace_wire::h3_connect::{Carries, ConnectRequest};
use millrace_wire::traceparent::TraceParent;
use quiche::h3;

/// Flows that share connections: those of listeners with the same class and congestion control.
#[derive(Clone, Debug)]
pub struct ConnectionGroup {
    /// The class of the flows.
    pub class: Class,
    /// The congestion control of what this end sends.
    pub choice: CcPolicy,
    /// The congestion control requested from the server; `None` leaves it to the server.
    pub requested_cc: Option<&'static str>,
    /// Whether connections are kept for flows to come: a configured class. A class that is only recognised gets
    /// connections when it has flows.
    pub is_kept_ready: bool,
}

/// What a request comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestSource {
    /// Address of the client.
    pub client: Option<SocketAddr>,
    /// The span of the request, if its flow is sampled.
    pub trace_parent: Option<TraceParent>,
}

impl ConnectionGroup {
    /// Opens a stream on `conn` for a flow of this group and requests its destination. Returns the stream; the
    /// response carries `key`.
    ///
    /// # Errors
    /// See [`Core::request`].
    pub(crate) fn request(
        &self,
        core: &mut Core,
        conn: ConnId,
        carries: Carries,
        destination: &Destination,
        source: RequestSource,
        key: u64,
    ) -> h3::Result<u64> {
        core.select_cc(conn, None, &self.choice, self.class);
        let request = ConnectRequest {
            carries,
            destination: destination.clone(),
            class: Some(self.class.as_str().to_owned()),
            congestion_control: self.requested_cc.map(str::to_owned),
            client_address: source.client,
            trace_parent: source.trace_parent,
        };
        let fields: Vec<_> = request
            .fields()
            .iter()
            .map(|(name, value)| h3::Header::new(name.as_bytes(), value.as_bytes()))
            .collect();
        core.request(conn, &fields, key)
    }
}

/// The connection groups of all listeners.
#[derive(Clone, Debug)]
pub struct Grouping {
    /// All groups.
    pub groups: Vec<ConnectionGroup>,
    /// What each listener needs of them, in the order of the configuration.
    pub listeners: Vec<ListenerClasses>,
}

impl Grouping {
    /// Groups the flows of `listens`. A managed congestion control begins with `initial`.
    ///
    /// # Errors
    /// See [`registry::find`].
    pub fn new(
        listens: &[Listen],
        transport: &TransportConfig,
        initial: Option<&Algorithm>,
    ) -> Result<Self, registry::AlgorithmError> {
        let algorithms = Algorithms::new(transport, initial)?;
        let mut grouping = Self { groups: Vec::new(), listeners: Vec::new() };
        let mut keys = Vec::new();
        for listen in listens {
            let mut of_class = [None; Class::ALL.len()];
            for class in Class::ALL {
                let is_configured = listen.configured_classes().any(|it| it == class);
                if !is_configured && !listen.recognise_class {
                    continue;
                }
                let key = (class, &listen.congestion_control);
                let known = keys.iter().position(|other| *other == key);
                let group = known.unwrap_or(keys.len());
                if known.is_none() {
                    keys.push(key);
                    let choose = |it| CcPolicy::new(it, initial);
                    let own = listen.congestion_control.as_ref().map(choose).transpose()?;
                    let requested_cc = own.as_ref().map(CcPolicy::name);
                    let choice = own.unwrap_or_else(|| algorithms.of(class).clone());
                    let is_kept_ready = false;
                    let group = ConnectionGroup { class, choice, requested_cc, is_kept_ready };
                    grouping.groups.push(group);
                }
                grouping.groups[group].is_kept_ready |= is_configured;
                of_class[class as usize] = Some(group);
            }
            // The listener's own class is always among them.
            let default = of_class[listen.class as usize].unwrap_or_default();
            grouping.listeners.push(ListenerClasses {
                default: listen.class,
                of_ports: listen.class_of_ports.clone(),
                recognises: listen.recognise_class,
                groups: ListenerGroups(of_class.map(|group| group.unwrap_or(default))),
            });
        }
        Ok(grouping)
    }
}

/// The number of a listener's connection group for each class; that of its own class for classes that its flows
/// never have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerGroups([usize; Class::ALL.len()]);

/// How a listener classifies its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerClasses {
    /// Class of flows that nothing else is known of.
    pub default: Class,
    of_ports: Vec<ClassOfPorts>,
    /// Whether other classes are recognised.
    pub recognises: bool,
    /// Connection groups of its classes.
    pub groups: ListenerGroups,
}

impl ListenerClasses {
    /// The number of the connection group for flows of a class.
    pub fn group(&self, class: Class) -> usize {
        self.groups.0[class as usize]
    }

    /// The number of the connection group for flows of its own class.
    pub fn default_group(&self) -> usize {
        self.group(self.default)
    }

    /// The class that the configuration gives the flows to `port`, if it gives them one.
    pub fn class_of_port(&self, port: u16) -> Option<Class> {
        let entry = self.of_ports.iter().find(|it| it.ports.contains(&port));
        entry.map(|it| it.class)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn grouping(listens: &str) -> Grouping {
        let text = format!(
            "[tunnel]\nservers = [\"198.18.2.2:4433\"]\nserver_name = \"a\"\nca = \"ca.pem\"\n\
             certificate = \"a.pem\"\nprivate_key = \"a.key\"\n{listens}"
        );
        let known = &millrace_tunnel::algorithms::check;
        let config = millrace_config::parse_client(&text, Path::new("client.toml"), known).unwrap();
        Grouping::new(&config.listen, &config.tunnel.transport, None).unwrap()
    }

    fn shown(grouping: &Grouping) -> Vec<(&str, bool, Option<&str>)> {
        let groups = grouping.groups.iter();
        groups.map(|it| (it.class.as_str(), it.is_kept_ready, it.requested_cc)).collect()
    }

    const SOCKS: &str = "[[listen]]\nmode = \"socks5\"\naddress = \"127.0.0.1:1\"\n";

    #[test]
    fn a_listener_has_a_group_for_each_class_and_keeps_the_configured_one_ready() {
        let grouping = grouping(&format!("{SOCKS}class = \"dash\"\n"));
        let expected = [("bulk", false, None), ("dash", true, None), ("rtsp", false, None)];
        assert_eq!(shown(&grouping), expected);
        let classes = &grouping.listeners[0];
        assert_eq!(Class::ALL.map(|class| classes.group(class)), [0, 1, 2]);
        assert_eq!(classes.default_group(), 1);
    }

    #[test]
    fn without_recognition_a_listener_has_the_groups_of_its_configured_classes() {
        let off = "class = \"dash\"\nrecognise_class = false\n";
        let one = grouping(&format!("{SOCKS}{off}"));
        assert_eq!(shown(&one), [("dash", true, None)]);
        assert_eq!(Class::ALL.map(|class| one.listeners[0].group(class)), [0; 3]);
        let entry = "[[listen.class_of_ports]]\nports = [554]\nclass = \"rtsp\"\n";
        let two = grouping(&format!("{SOCKS}{off}{entry}"));
        assert_eq!(shown(&two), [("dash", true, None), ("rtsp", true, None)]);
        assert_eq!(two.listeners[0].class_of_port(554), Some(Class::Rtsp));
        assert_eq!(two.listeners[0].class_of_port(555), None);
    }

    #[test]
    fn listeners_share_groups_of_one_class_and_congestion_control() {
        let own = "congestion_control = \"bbr\"\n";
        let second = SOCKS.replace("127.0.0.1:1", "127.0.0.1:2");
        let third = SOCKS.replace("127.0.0.1:1", "127.0.0.1:3");
        let grouping = grouping(&format!("{SOCKS}{second}class = \"rtsp\"\n{third}{own}"));
        assert_eq!(grouping.groups.len(), 6);
        assert_eq!(grouping.listeners[0].groups, grouping.listeners[1].groups);
        let ready: Vec<_> = shown(&grouping).into_iter().filter(|(_, ready, _)| *ready).collect();
        let expected = [("bulk", true, None), ("rtsp", true, None), ("bulk", true, Some("bbr"))];
        assert_eq!(ready, expected);
    }
}
