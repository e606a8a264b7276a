//! The players of a run: what they need, and their handles.

use std::time::Instant;

use anyhow::{Context, Result};

use super::address_plan::AddressPlan;
use super::browsers::{self, BrowserPlayers, MediaLibrary};
use super::run_paths::RunPaths;
use super::session::{self, SessionResult};
use super::streams::{RtpTransport, StreamLibrary, StreamPlayer};
use super::traffic::EmulatedFlow;
use crate::player::BrowserSession;
use crate::process::Running;
use crate::scenario::{App, Scenario, StreamTransport};
use crate::site::Site;
use crate::topology::Topology;

/// What players need, prepared once for all runs.
#[derive(Debug, Default)]
pub struct PlayerPool {
    /// For flows with `app = "dash"`; `None` without such flows.
    pub media: Option<MediaLibrary>,
    /// For flows with `app = "rtsp"`; `None` without such flows.
    pub streams: Option<StreamLibrary>,
}

/// A player that waits for its flow to begin.
#[derive(Debug)]
pub enum PlayerHandle {
    /// A browser with the page in it.
    Browser(BrowserSession),
    /// openRTSP.
    Stream(StreamPlayer),
}

/// All players of a run, and the servers that they play from, which end with it.
#[derive(Debug)]
pub struct Players {
    /// In the order of the flows; `None` for flows without a player.
    pub handles: Vec<Option<PlayerHandle>>,
    /// Servers of videos and of the page.
    pub sites: Vec<Site>,
    /// Servers of streams.
    pub rtsp: Vec<Running>,
}

impl PlayerPool {
    /// # Errors
    /// What of it can't be played.
    pub fn can_play(&self, scenario: &Scenario) -> Result<(), String> {
        self.media.as_ref().map_or(Ok(()), |media| media.can_play(scenario))?;
        self.streams.as_ref().map_or(Ok(()), |streams| streams.can_play(scenario))
    }

    /// Starts the servers, and a player for each flow that has one.
    ///
    /// # Errors
    /// When a server or a player does not start; with its log.
    pub fn open(
        &self,
        scenario: &Scenario,
        address_plan: &AddressPlan,
        topology: &Topology,
        paths: RunPaths<'_>,
    ) -> Result<Players> {
        session::route(scenario, address_plan, topology)?;
        let BrowserPlayers { browsers, sites } =
            BrowserPlayers::open(self.media.as_ref(), scenario, address_plan, topology, paths)?;
        let mut players = Players {
            handles: browsers.into_iter().map(|it| it.map(PlayerHandle::Browser)).collect(),
            sites,
            rtsp: Vec::new(),
        };
        let flows = address_plan.flows.iter().zip(&mut players.handles);
        for (flow, (addresses, handle)) in flows.enumerate() {
            let app = scenario.groups[addresses.group].app;
            let App::Rtsp { media_mbps, client_buffer_s, transport } = app else { continue };
            let streams = self.streams.as_ref().context("the streams are not prepared")?;
            let log = paths.logs.join(format!("live555-{flow}.log"));
            let origin = paths.hosts.of(flow, topology);
            players.rtsp.push(streams.serve(origin, addresses.origin, &log)?);
            let directory = paths.directory.join(format!("player-{flow}"));
            let transport = match transport {
                StreamTransport::Tcp => RtpTransport::Interleaved,
                StreamTransport::Udp => RtpTransport::Datagrams { port: addresses.media_port },
            };
            let player = streams.player(media_mbps, client_buffer_s, transport, &directory)?;
            *handle = Some(PlayerHandle::Stream(player));
        }
        Ok(players)
    }
}

impl PlayerHandle {
    /// Plays the flow from the beginning to the end; `None` when the run ended before it began.
    ///
    /// # Errors
    /// When nothing could be measured, or a connection used another congestion control than configured.
    pub fn play(
        self,
        flow: &EmulatedFlow<'_>,
        topology: &Topology,
        began: Instant,
    ) -> Result<Option<SessionResult>> {
        match self {
            Self::Browser(browser) => browsers::play(browser, flow, began),
            Self::Stream(player) => player.play(flow, topology, began),
        }
    }
}
