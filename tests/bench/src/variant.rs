//! The ways from sink to origin that are compared.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use millrace_lab::interrupt;
use millrace_lab::process::{Running, tail};
use serde::Serialize;

use crate::arena::{Arena, CLIENT, SERVER};
use crate::certificates::Certificates;
use crate::origin::Origin;
use crate::sink;

/// Address of the variant's listener, on the client's host.
const LISTENER_ADDRESS: SocketAddrV4 = SocketAddrV4::new(CLIENT, 8080);
/// Where the tunnel's server listens.
pub const TUNNEL: SocketAddrV4 = SocketAddrV4::new(SERVER, 4433);
/// What the server's certificate is for.
const SERVER_NAME: &str = "server.bench.invalid";
/// How long a variant may take until the first byte has come through it.
const START_TIMEOUT: Duration = Duration::from_secs(15);

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

/// More than any of the benches opens.
const MAX_FLOWS: u32 = 25_000;
/// For receive windows: 250 connections at full rate want more than the usual.
const MEMORY_MB: u32 = 100_000;

/// What the variants need to know.
#[derive(Debug, Clone)]
pub struct BenchSettings {
    /// Directory of `millrace-client` and `millrace-server`.
    pub programs: PathBuf,
    /// Congestion control of the tunnel.
    pub cc: String,
    /// Rate of the tunnel in Mbit/s, of the controller `constant`.
    pub rate_mbps: Option<f64>,
    /// `shared` or `per_flow`.
    pub connections: String,
    /// Event loops of each proxy; 0 is one per core.
    pub workers: usize,
    /// Rules of the server, where `cc` is `mcc`; the client has BBR then.
    pub rules: Option<PathBuf>,
}

/// A program that is part of a variant.
#[derive(Debug)]
pub struct VariantProgram {
    /// What it is in results: `client`, `server` or `proxy`.
    pub role: &'static str,
    /// The process, leader of its own group.
    pub process: Running,
    log: PathBuf,
}

/// A running variant; ended when dropped.
#[derive(Debug)]
pub struct Way {
    /// Address that the sink connects to.
    pub listener: SocketAddr,
    /// The programs in between.
    pub parts: Vec<VariantProgram>,
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
        let mut way = match variant {
            BenchVariant::Direct => Self { listener: origin.address(), parts: Vec::new() },
            BenchVariant::NginxStream => {
                Self { listener: LISTENER_ADDRESS.into(), parts: vec![nginx(arena, origin)?] }
            }
            BenchVariant::Millrace => Self {
                listener: LISTENER_ADDRESS.into(),
                parts: millrace(arena, origin, settings)?,
            },
        };
        way.await_first_byte(arena).with_context(|| format!("variant {}", variant.name()))?;
        Ok(way)
    }

    /// # Errors
    /// When one of the programs has ended, with the end of its log.
    pub fn must_run(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.process.must_run(&part.log))
    }

    fn await_first_byte(&mut self, arena: &Arena) -> Result<()> {
        let mut last = None;
        let ready = interrupt::wait_for(START_TIMEOUT, || {
            self.must_run()?;
            let probe = sink::open(&arena.client, self.listener, 1)
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
         stream {{ server {{ listen {LISTENER_ADDRESS}; proxy_pass {origin}; }} }}\n",
        dir = dir.display(),
        origin = origin.address(),
    );
    let (file, log) = (dir.join("nginx.conf"), dir.join("nginx.log"));
    fs::write(&file, config)?;
    let mut command = arena.client.command("nginx");
    command.arg("-e").arg("stderr").arg("-c").arg(&file);
    let process = Running::start("nginx", &mut command, &log)?;
    Ok(VariantProgram { role: "proxy", process, log })
}

fn millrace(
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
) -> Result<Vec<VariantProgram>> {
    let dir = arena.run.scratch();
    Certificates::make(SERVER_NAME)?.write(dir)?;
    let SocketAddr::V4(origin) = origin.address() else { bail!("the origin is not on IPv4") };
    let cc = match settings.rate_mbps {
        None => format!("\"{}\"", settings.cc),
        Some(rate) => format!("{{ name = \"constant\", rate_mbps = {rate} }}"),
    };
    let common = format!(
        "\n[runtime]\nworkers = {}\n[admin]\naddress = \"none\"\n[log]\nlevel = \"warn\"\n",
        settings.workers
    );
    let (mcc, client_cc) = match &settings.rules {
        None => (String::new(), cc.clone()),
        Some(rules) => {
            (format!("[mcc]\ninitial = \"cubic\"\nrules = {rules:?}\n"), "\"cubic\"".to_owned())
        }
    };
    let server = format!(
        "[tunnel]\nlisten = [\"{TUNNEL}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         congestion_control = {cc}\nmemory_cap_mb = {MEMORY_MB}\n\
         [limits]\nmax_flows = {MAX_FLOWS}\nmemory_per_client_mb = {MEMORY_MB}\n\
         [[destinations.allow]]\nnetwork = \"{}\"\nports = [{}]\n{mcc}{common}",
        origin.ip(),
        origin.port(),
    );
    let client = format!(
        "[tunnel]\nservers = [\"{TUNNEL}\"]\nserver_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
         certificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         congestion_control = {client_cc}\nconnections = \"{}\"\n\
         memory_cap_mb = {MEMORY_MB}\nconnect_timeout_s = 60\nhealth_timeout_ms = 60000\n\
         [limits]\nmax_flows = {MAX_FLOWS}\n\
         [[listen]]\nmode = \"static\"\naddress = \"{LISTENER_ADDRESS}\"\n\
         destination = \"{origin}\"\n{common}",
        settings.connections,
    );
    let start = |role, host: &millrace_lab::netns::Namespace, program: &str, config: &str| {
        let file = dir.join(format!("{role}.toml"));
        let log = dir.join(format!("{role}.log"));
        fs::write(&file, config)?;
        let program = found(&settings.programs.join(program), "make build")?;
        let mut command = host.command(&program);
        command.arg("run").arg("--config").arg(&file);
        let process = Running::start(role, &mut command, &log)?;
        anyhow::Ok(VariantProgram { role, process, log })
    };
    Ok(vec![
        start("server", &arena.server, "millrace-server", &server)?,
        start("client", &arena.client, "millrace-client", &client)?,
    ])
}

fn found(program: &Path, how: &str) -> Result<String> {
    let absolute = program
        .canonicalize()
        .with_context(|| format!("{} is not there; build it: {how}", program.display()))?;
    absolute.into_os_string().into_string().map_err(|path| anyhow!("not UTF-8: {path:?}"))
}
