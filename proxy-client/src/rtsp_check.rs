//! Configurations in which RTP over UDP is not carried.

use millrace_config::{Class, ClientConfig, HostPort, Interception, Listen};

/// Ports of RTSP (IANA: `rtsp` and `rtsp-alt`).
const RTSP_PORTS: [u16; 2] = [554, 8554];

/// A setting with which RTP over UDP is not carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtspProblem {
    /// The setting, as `listen[0].recognise_class`.
    pub key: String,
    /// What does not work.
    pub problem: String,
    /// What to do.
    pub remedy: &'static str,
}

/// Finds listeners that may carry RTSP and do not follow it, because they recognise no classes.
pub fn check(config: &ClientConfig) -> Vec<RtspProblem> {
    if config.limits.max_rtsp_port_pairs == 0 {
        // Switched off everywhere.
        return Vec::new();
    }
    let listeners = config.listen.iter().enumerate();
    listeners.filter_map(|(index, listen)| check_listener(index, listen)).collect()
}

/// Writes the problems to the log.
pub(crate) fn warn(config: &ClientConfig) {
    for RtspProblem { key, problem, remedy } in check(config) {
        tracing::warn!(
            key,
            problem,
            remedy,
            "RTP over UDP is not carried: the server refuses its SETUP with 461"
        );
    }
}

fn check_listener(index: usize, listen: &Listen) -> Option<RtspProblem> {
    if listen.recognise_class {
        return None;
    }
    let may_go_to = |port: u16| match &listen.interception {
        Interception::Static { destination: HostPort { port: only, .. } } => *only == port,
        Interception::Udp { .. } => false,
        _ => true,
    };
    let is_lost = |port: &u16| may_go_to(*port) && listen.class_of_port(*port) != Some(Class::Rtsp);
    let port = RTSP_PORTS.into_iter().find(is_lost)?;
    Some(RtspProblem {
        key: format!("listen[{index}].recognise_class"),
        problem: format!(
            "is off, and flows to port {port} have class {}: RTSP in them is not followed",
            listen.class_of_port(port).unwrap_or(listen.class)
        ),
        remedy: "remove recognise_class = false, or give the ports 554 and 8554 class \"rtsp\" in \
                 [[listen.class_of_ports]]",
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn keys(listen: &str) -> Vec<String> {
        let text = format!(
            "[tunnel]\nservers = [\"198.18.2.2:4433\"]\nserver_name = \"a\"\nca = \"ca.pem\"\n\
             certificate = \"a.pem\"\nprivate_key = \"a.key\"\n{listen}\n"
        );
        let known = &millrace_tunnel::algorithms::check;
        let config = millrace_config::parse_client(&text, Path::new("client.toml"), known).unwrap();
        check(&config).into_iter().map(|it| it.key).collect()
    }

    const TPROXY: &str = "[[listen]]\nmode = \"tproxy\"\naddress = \"127.0.0.1:1\"\n";
    const OFF: &str = "recognise_class = false\n";

    #[test]
    fn a_listener_that_may_carry_rtsp_and_does_not_recognise_it_is_found() {
        let found = ["listen[0].recognise_class"];
        assert_eq!(keys(&format!("{TPROXY}{OFF}")), found);
        assert_eq!(keys(&format!("{TPROXY}{OFF}class = \"dash\"")), found);
        let one = "class_of_ports = [{ ports = [554], class = \"rtsp\" }]";
        assert_eq!(keys(&format!("{TPROXY}{OFF}{one}")), found);
        let fixed = "[[listen]]\nmode = \"static\"\naddress = \"127.0.0.1:1\"\n";
        assert_eq!(keys(&format!("{fixed}destination = \"198.18.3.2:554\"\n{OFF}")), found);
        assert_eq!(keys(&format!("{fixed}destination = \"198.18.3.2:80\"\n{OFF}")), [""; 0]);
    }

    #[test]
    fn a_listener_that_follows_rtsp_or_is_not_meant_to_is_fine() {
        assert_eq!(keys(TPROXY), [""; 0]);
        assert_eq!(keys(&format!("{TPROXY}{OFF}class = \"rtsp\"")), [""; 0]);
        let both = "class_of_ports = [{ ports = [554, \"8550-8560\"], class = \"rtsp\" }]";
        assert_eq!(keys(&format!("{TPROXY}{OFF}{both}")), [""; 0]);
        let udp = "[[listen]]\nmode = \"udp\"\naddress = \"127.0.0.1:1\"\n\
                   destination = \"198.18.3.2:554\"\n";
        assert_eq!(keys(udp), [""; 0]);
        let switched_off = "[limits]\nmax_rtsp_port_pairs = 0\n";
        assert_eq!(keys(&format!("{TPROXY}{OFF}{switched_off}")), [""; 0]);
    }
}
