//! The tunnel's data path on tokio-quiche: TCP in, one QUIC stream a flow, TCP out.
//!
//! Only what a bulk comparison needs: one connection, no HTTP/3 framing, one fixed origin, no
//! authentication of the client, errors end the process. So it does less than the product does.

mod relay;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Parser, Subcommand};
use futures::StreamExt;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio_quiche::metrics::DefaultMetrics;
use tokio_quiche::quic::{SimpleConnectionIdGenerator, connect_with_config};
use tokio_quiche::settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths};
use tokio_quiche::socket::{QuicListener, Socket as QuicSocket, SocketCapabilities};
use tokio_quiche::{ConnectionParams, listen_with_capabilities};

use relay::Relay;

/// The product's, so that windows, packets and socket buffers are the same.
const UDP_PAYLOAD_BYTES: usize = 1452;
const STREAM_WINDOW_BYTES: u64 = 1 << 20;
const MAX_STREAM_WINDOW_BYTES: u64 = 32 << 20;
const MAX_CONNECTION_WINDOW_BYTES: u64 = 64 << 20;
const SOCKET_BUFFER_BYTES: usize = 8 << 20;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    end: End,
}

#[derive(Subcommand)]
enum End {
    /// Accepts one stream a flow and dials the origin for it
    Server {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        origin: SocketAddr,
        #[arg(long)]
        certificate: PathBuf,
        #[arg(long)]
        private_key: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Accepts TCP and opens a stream for each connection
    Client {
        #[arg(long)]
        server: SocketAddr,
        #[arg(long)]
        listen: SocketAddr,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    /// One of quiche's own algorithms
    #[arg(long, default_value = "cubic")]
    cc: String,
    /// Cap on the pacing rate, with the algorithm bbr2_gcongestion
    #[arg(long)]
    rate_mbps: Option<u64>,
    /// Threads of the runtime; 0 is the current thread only, which was the cheapest
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let threads = match &cli.end {
        End::Server { common, .. } | End::Client { common, .. } => common.threads,
    };
    let runtime = match threads {
        0 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        threads => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?,
    };
    runtime.block_on(async {
        match cli.end {
            End::Server { listen, origin, certificate, private_key, common } => {
                let (cert, key) = (text(&certificate)?, text(&private_key)?);
                serve(listen, origin, cert, key, &common).await
            }
            End::Client { server, listen, common } => dial(server, listen, &common).await,
        }
    })
}

fn text(path: &std::path::Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

async fn serve(
    listen: SocketAddr,
    origin: SocketAddr,
    cert: &str,
    private_key: &str,
    common: &Common,
) -> Result<()> {
    let socket = udp(listen)?;
    let capabilities = SocketCapabilities::apply_all_and_get_compatibility(&socket);
    let listener = QuicListener {
        socket,
        cid_generator: std::sync::Arc::new(SimpleConnectionIdGenerator),
        capabilities,
    };
    let tls = TlsCertificatePaths { cert, private_key, kind: CertificateKind::X509 };
    let params = ConnectionParams::new_server(settings(common), tls, Hooks::default());
    let mut streams = listen_with_capabilities([listener], params, DefaultMetrics)?;
    ensure!(streams.len() == 1, "one listener, one stream of connections");
    while let Some(connection) = streams[0].next().await {
        connection?.start(Relay::server(origin));
    }
    Ok(())
}

async fn dial(server: SocketAddr, listen: SocketAddr, common: &Common) -> Result<()> {
    let any: SocketAddr =
        if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = udp(any)?;
    socket.connect(server).await?;
    let mut socket =
        QuicSocket::<std::sync::Arc<UdpSocket>, std::sync::Arc<UdpSocket>>::from_udp(socket)?;
    socket.apply_max_capabilities();
    let (accepted, flows) = mpsc::channel(64);
    let params = ConnectionParams::new_client(settings(common), None, Hooks::default());
    let _connection = connect_with_config(socket, Some("prototype"), &params, Relay::client(flows))
        .await
        .map_err(|error| anyhow!("connect: {error}"))?;
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        accepted.send(stream).await.context("the connection has ended")?;
    }
}

fn settings(common: &Common) -> QuicSettings {
    let mut settings = QuicSettings::default();
    settings.cc_algorithm.clone_from(&common.cc);
    settings.max_recv_udp_payload_size = UDP_PAYLOAD_BYTES;
    settings.max_send_udp_payload_size = UDP_PAYLOAD_BYTES;
    settings.initial_max_data = 4 * STREAM_WINDOW_BYTES;
    settings.initial_max_stream_data_bidi_local = STREAM_WINDOW_BYTES;
    settings.initial_max_stream_data_bidi_remote = STREAM_WINDOW_BYTES;
    settings.initial_max_streams_bidi = 10_000;
    settings.max_stream_window = MAX_STREAM_WINDOW_BYTES;
    settings.max_connection_window = MAX_CONNECTION_WINDOW_BYTES;
    settings.disable_client_ip_validation = true;
    settings.enable_pacing = true;
    settings.grease = false;
    // bbr2_gcongestion, the only algorithm that reads it, takes Mbit/s.
    settings.max_pacing_rate = common.rate_mbps;
    settings
}

fn udp(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    Ok(UdpSocket::from_std(socket.into())?)
}
