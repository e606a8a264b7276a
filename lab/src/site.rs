//! A web server of the lab: nginx with the page, the media, or both.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::http;
use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{Running, output_of};

/// Time in which nginx must answer.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a web server serves, where it listens, and where it logs.
#[derive(Debug, Clone, Copy)]
pub struct SiteContent<'a> {
    /// Its name, for files and errors.
    pub name: &'a str,
    /// Where it listens.
    pub listen: &'a [SocketAddr],
    /// The player's page, served at `/`.
    pub page: Option<&'a Path>,
    /// Manifest and segments, served at `/media/` to pages from anywhere.
    pub media: Option<&'a Path>,
    /// For access and error log.
    pub logs: &'a Path,
}

/// A running nginx. Dropping it stops it.
#[derive(Debug)]
pub struct Site {
    _nginx: Running,
}

impl Site {
    /// Starts nginx in `namespace` and waits until it answers.
    ///
    /// # Errors
    /// When nginx refuses its configuration or does not answer in time; with its log.
    pub fn start(namespace: &Namespace, content: SiteContent<'_>, scratch: &Path) -> Result<Self> {
        let name = content.name;
        let directory = scratch.join(name);
        fs::create_dir_all(&directory)?;
        let config = directory.join("nginx.conf");
        fs::write(&config, configuration(content, &directory)?)?;
        let log = content.logs.join(format!("{name}-nginx.log"));
        let mut command = namespace.command("nginx");
        command.arg("-p").arg(&directory).arg("-c").arg(&config).arg("-e").arg(&log);
        let out = content.logs.join(format!("{name}-nginx.out"));
        let mut nginx = Running::start("nginx", &mut command, &out)?;
        let address = *content.listen.first().context("a site listens somewhere")?;
        let answered = interrupt::wait_for(READY_TIMEOUT, || {
            nginx.must_run(&log)?;
            http::get(namespace, address, "/healthz")
        })?;
        answered.with_context(|| {
            format!("nginx ({name}) did not answer within {} s", READY_TIMEOUT.as_secs())
        })?;
        Ok(Self { _nginx: nginx })
    }
}

/// What the kernel in `namespace` uses for the first of its connections that `filter` lets through, as
/// `ss` takes one.
///
/// # Errors
/// When there is no such connection.
pub fn congestion_control(namespace: &Namespace, filter: &[&str]) -> Result<String> {
    let mut command = namespace.command("ss");
    let text = output_of(command.arg("-tinH").args(filter))?;
    ["cubic", "bbr", "reno"]
        .into_iter()
        .find(|name| text.split_ascii_whitespace().any(|word| word == *name))
        .map(str::to_owned)
        .with_context(|| format!("no connection of {}: {text}", filter.join(" ")))
}

fn configuration(content: SiteContent<'_>, directory: &Path) -> Result<String> {
    let directory = quoted(directory, "")?;
    let access = quoted(&content.logs.join(format!("{}-access.log", content.name)), "")?;
    let listen: String =
        content.listen.iter().map(|address| format!("        listen {address};\n")).collect();
    let mut locations = String::new();
    if let Some(media) = content.media {
        let media = quoted(media, "/")?;
        locations += &format!(
            "        location /media/ {{ alias {media}; add_header Access-Control-Allow-Origin *; }}\n"
        );
    }
    if let Some(page) = content.page {
        let page = quoted(page, "")?;
        locations += &format!("        location / {{ root {page}; index index.html; }}\n");
    }
    // The worker stays root: media and scratch files may lie where only their owner reads, and the
    // namespace has no way out.
    Ok(format!(
        r#"daemon off;
worker_processes 1;
user root;
pid nginx.pid;
events {{ worker_connections 1024; }}
http {{
    types {{
        text/html html;
        text/css css;
        text/javascript js mjs;
        image/svg+xml svg;
        image/png png;
        font/woff2 woff2;
        application/json json map;
        application/dash+xml mpd;
        video/mp4 mp4 m4s m4v;
        audio/mp4 m4a;
    }}
    default_type application/octet-stream;
    log_format timed '$msec $remote_addr "$request" $status $body_bytes_sent $request_time '
                     '$connection/$connection_requests rtt=$tcpinfo_rtt';
    access_log {access} timed;
    client_body_temp_path {directory};
    proxy_temp_path {directory};
    fastcgi_temp_path {directory};
    uwsgi_temp_path {directory};
    scgi_temp_path {directory};
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 75s;
    keepalive_requests 100000;
    server {{
{listen}        location = /healthz {{ access_log off; return 204; }}
{locations}    }}
}}
"#
    ))
}

/// A path as a parameter of nginx, which knows no escape for `$`.
fn quoted(path: &Path, end: &str) -> Result<String> {
    let text = path.to_str().context("a path that is not UTF-8")?;
    if text.contains(['"', '$', '\\', '\n']) {
        bail!("{text}: nginx can't serve a path with \", $ or \\ in it");
    }
    Ok(format!("\"{text}{end}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_nginx_would_expand_are_refused() {
        assert_eq!(quoted(Path::new("/a b"), "/").unwrap(), "\"/a b/\"");
        for bad in ["/a$b", "/a\"b", "/a\\b"] {
            assert!(quoted(Path::new(bad), "").is_err(), "{bad}");
        }
    }

    #[test]
    fn serves_what_it_is_given_and_listens_everywhere() {
        let listen = ["198.18.3.2:80".parse().unwrap(), "[2001:2::1]:5001".parse().unwrap()];
        let content = SiteContent {
            name: "origin",
            listen: &listen,
            page: None,
            media: Some(Path::new("/m")),
            logs: Path::new("/l"),
        };
        let text = configuration(content, Path::new("/s")).unwrap();
        assert!(
            text.contains("listen 198.18.3.2:80;") && text.contains("listen [2001:2::1]:5001;")
        );
        assert!(text.contains("alias \"/m/\"") && !text.contains("index.html"));
    }
}
