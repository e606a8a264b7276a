//! The ways from sink to origin that are compared.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use millrace_lab::interrupt;
use millrace_lab::netns::Namespace;
use millrace_lab::process::{Running, tail};
use serde::Serialize;

use crate::arena::Arena;
use crate::certificates::Certificates;
use crate::origin::Origin;
use crate::settings::BenchSettings;
use crate::sink;
use crate::tunnel_config::{self, SERVER_NAME};

/// How long a variant may take until the first byte has come through it.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Role of the client whose flow has a set rate.
pub const PROBE: &str = "probe";

/// A way from the sink to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchVariant {
    /// Through the tunnel pair
    Millrace,
    /// Kernel TCP from end to end
    Direct,
    /// One nginx `stream` proxy in between, on the client's host
    NginxStream,
}

impl BenchVariant {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Millrace => "millrace",
            Self::Direct => "direct",
            Self::NginxStream => "nginx_stream",
        }
    }
}

/// A program that is part of a variant.
#[derive(Debug)]
pub struct VariantProgram {
    /// What it is in results: `client`, `server`, `proxy` or [`PROBE`].
    pub role: &'static str,
    /// The process, leader of its own group.
    pub process: Running,
    log: PathBuf,
}

impl VariantProgram {
    /// Starts `command`, its output going to the file `log`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(role: &'static str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let process = Running::start(role, command, &log)?;
        Ok(Self { role, process, log })
    }
}

/// A running variant; ended when dropped.
#[derive(Debug)]
pub struct Way {
    /// Address that the sink connects to.
    pub listener: SocketAddr,
    /// Those of further client edges.
    pub further_listeners: Vec<SocketAddr>,
    /// The programs in between.
    pub parts: Vec<VariantProgram>,
}

impl Drop for Way {
    fn drop(&mut self) {
        // They end beside each other then.
        self.parts.iter().for_each(|part| part.process.ask_to_end());
    }
}

impl Way {
    /// Starts `variant` to `origin` and waits until a byte comes through.
    ///
    /// # Errors
    /// When a program can't be started, ends, or lets no byte through in time.
    pub fn start(
        variant: BenchVariant,
        arena: &Arena,
        origin: &Origin,
        settings: &BenchSettings,
    ) -> Result<Self> {
        let listener = tunnel_config::listener(0).into();
        let (listener, parts) = match variant {
            BenchVariant::Direct => (origin.address(), Vec::new()),
            BenchVariant::NginxStream => (listener, vec![nginx(arena, origin)?]),
            BenchVariant::Millrace => (listener, millrace(arena, origin, settings)?),
        };
        let mut way = Self::through(listener, parts);
        let mut addresses = vec![listener];
        if variant == BenchVariant::Millrace {
            let further = 1..=settings.further_edges;
            way.further_listeners = further.map(|it| tunnel_config::listener(it).into()).collect();
            addresses.extend_from_slice(&way.further_listeners);
            addresses.extend(
                settings.probe_mbps.map(|_| SocketAddr::from(tunnel_config::probe_listener())),
            );
        }
        for address in addresses {
            way.await_first_byte(arena, address)
                .with_context(|| format!("variant {}, {address}", variant.name()))?;
        }
        Ok(way)
    }

    /// The way through `parts`, which are running.
    pub fn through(listener: SocketAddr, parts: Vec<VariantProgram>) -> Self {
        Self { listener, further_listeners: Vec::new(), parts }
    }

    /// # Errors
    /// When one of the programs has ended, with the end of its log.
    pub fn must_run(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.process.must_run(&part.log))
    }

    /// Waits until a byte comes through the listener at `address`.
    ///
    /// # Errors
    /// When a program ends, or lets no byte through in time.
    pub fn await_first_byte(&mut self, arena: &Arena, address: SocketAddr) -> Result<()> {
        let mut last = None;
        let ready = interrupt::wait_for(START_TIMEOUT, || {
            self.must_run()?;
            let probe = sink::open(&arena.client, address, 1)
                .and_then(|mut stream| sink::read_exactly(&mut stream, 1));
            Ok(probe.map_err(|error| last = Some(error)).ok())
        })?;
        if ready.is_some() {
            return Ok(());
        }
        let mut message = format!("no byte came through in {} s", START_TIMEOUT.as_secs());
        for part in &self.parts {
            write!(message, "\n{}", tail(&part.log))?;
        }
        Err(last.unwrap_or_else(|| anyhow!("it was never asked for one")).context(message))
    }
}

fn nginx(arena: &Arena, origin: &Origin) -> Result<VariantProgram> {
    let dir = arena.run.scratch();
    let config = format!(
        "# Stock nginx, its own defaults except where it keeps files.\n\
         load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n\
         daemon off;\n\
         worker_processes auto;\n\
         pid {dir}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         stream {{ server {{ listen {listener}; proxy_pass {origin}; }} }}\n",
        dir = dir.display(),
        listener = tunnel_config::listener(0),
        origin = origin.address(),
    );
    let (file, log) = (dir.join("nginx.conf"), dir.join("nginx.log"));
    fs::write(&file, config)?;
    let mut command = arena.client.command("nginx");
    command.arg("-e").arg("stderr").arg("-c").arg(&file);
    VariantProgram::start("proxy", &mut command, log)
}

fn millrace(
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
) -> Result<Vec<VariantProgram>> {
    let dir = arena.run.scratch();
    Certificates::make(SERVER_NAME)?.write(dir)?;
    let SocketAddr::V4(origin) = origin.address() else { bail!("the origin is not on IPv4") };
    let start = |role: &'static str, number: u16, host: &Namespace, config: &str| {
        let file = dir.join(format!("{role}-{number}.toml"));
        let log = dir.join(format!("{role}-{number}.log"));
        fs::write(&file, config)?;
        let program = if role == "server" { "millrace-server" } else { "millrace-client" };
        let program = found(&settings.programs.join(program), "make build")?;
        let mut command = host.command(&program);
        command.arg("run").arg("--config").arg(&file);
        VariantProgram::start(role, &mut command, log)
    };
    let server = tunnel_config::server(origin, settings);
    let mut parts = vec![start("server", 0, &arena.server, &server)?];
    for edge in 0..=settings.further_edges {
        let client = tunnel_config::client(edge, origin, settings);
        parts.push(start("client", edge, &arena.client, &client)?);
    }
    if let Some(rate) = settings.probe_mbps {
        let client = tunnel_config::probe_client(origin, rate);
        parts.push(start(PROBE, 0, &arena.client, &client)?);
    }
    Ok(parts)
}

fn found(program: &Path, how: &str) -> Result<String> {
    let absolute = program
        .canonicalize()
        .with_context(|| format!("{} is not there; build it: {how}", program.display()))?;
    absolute.into_os_string().into_string().map_err(|path| anyhow!("not UTF-8: {path:?}"))
}
