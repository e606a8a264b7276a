//! The origin: nginx with the page and the media.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::netns::Namespace;
use crate::process::Running;
use crate::{http, topology};

/// What the origin serves and where it logs.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The player's page, served at `/`.
    pub page: &'a Path,
    /// Manifest and segments, served at `/media/`.
    pub media: &'a Path,
    /// Access and error log.
    pub logs: &'a Path,
}

/// A running nginx. Dropping it stops it.
#[derive(Debug)]
pub struct Origin {
    _nginx: Running,
}

impl Origin {
    /// Starts nginx in `namespace` on port 80 of the origin's address, and waits until it answers.
    ///
    /// # Errors
    /// When nginx refuses its configuration or does not answer within 10 s; with its log.
    pub fn start(namespace: &Namespace, content: Content<'_>, scratch: &Path) -> Result<Self> {
        let directory = scratch.join("origin");
        fs::create_dir_all(&directory)?;
        let config = directory.join("nginx.conf");
        fs::write(&config, configuration(content, &directory)?)?;
        let log = content.logs.join("nginx.log");
        let mut command = namespace.command("nginx");
        command.arg("-p").arg(&directory).arg("-c").arg(&config).arg("-e").arg(&log);
        let mut nginx = Running::start("nginx", &mut command, &content.logs.join("nginx.out"))?;
        let address: SocketAddr = format!("{}:80", topology::ORIGIN).parse()?;
        let answered = interrupt::wait_for(Duration::from_secs(10), || {
            nginx.must_run(&log)?;
            http::get(namespace, address, "/healthz")
        })?;
        answered.context("nginx did not answer within 10 s")?;
        Ok(Self { _nginx: nginx })
    }
}

fn configuration(content: Content<'_>, directory: &Path) -> Result<String> {
    let directory = quoted(directory, "")?;
    let page = quoted(content.page, "")?;
    let media = quoted(content.media, "/")?;
    let access = quoted(&content.logs.join("access.log"), "")?;
    let origin = topology::ORIGIN;
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
        listen {origin}:80;
        location = /healthz {{ access_log off; return 204; }}
        location /media/ {{ alias {media}; }}
        location / {{ root {page}; index index.html; }}
    }}
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
}
