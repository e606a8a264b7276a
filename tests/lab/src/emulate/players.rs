//! The players of a run, whatever kind they are: what they need, and their seats.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::hosts::Hosts;
use super::places::Places;
use super::streams::{self, Streams, Way};
use super::traffic::Flow;
use super::view::{self, View};
use super::viewers::{self, Theatre, Viewers};
use crate::player::Viewer;
use crate::process::Running;
use crate::scenario::{App, Scenario, Transport};
use crate::site::Site;
use crate::topology::Topology;

/// What players need, prepared once for all runs; none of what nobody plays.
#[derive(Debug, Default)]
pub struct Equipment {
    /// For flows with `app = "dash"`.
    pub theatre: Option<Theatre>,
    /// For flows with `app = "rtsp"`.
    pub streams: Option<Streams>,
}

/// Where a run leaves what.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// What goes with the run.
    pub scratch: &'a Path,
    /// What stays.
    pub directory: &'a Path,
    /// Logs.
    pub logs: &'a Path,
    /// Origins that are apart.
    pub hosts: &'a Hosts,
}

/// A player that waits for its flow to begin.
#[derive(Debug)]
pub enum Seat {
    /// A browser with the page in it.
    Browser(Viewer),
    /// openRTSP.
    Stream(streams::Client),
}

/// All players of a run, and what serves them for as long as this is there.
#[derive(Debug)]
pub struct Players {
    /// In the order of the flows; `None` of those that nobody watches.
    pub seats: Vec<Option<Seat>>,
    /// Servers of videos and of the page.
    pub sites: Vec<Site>,
    /// Servers of streams.
    pub rtsp: Vec<Running>,
}

impl Equipment {
    /// # Errors
    /// What of it can't be shown.
    pub fn can_show(&self, scenario: &Scenario) -> Result<(), String> {
        self.theatre.as_ref().map_or(Ok(()), |theatre| theatre.can_show(scenario))?;
        self.streams.as_ref().map_or(Ok(()), |streams| streams.can_show(scenario))
    }

    /// Starts the servers and gives each flow that is watched its player.
    ///
    /// # Errors
    /// When a server or a player does not start; with its log.
    pub fn open(
        &self,
        scenario: &Scenario,
        places: &Places,
        topology: &Topology,
        room: Room<'_>,
    ) -> Result<Players> {
        view::route(scenario, places, topology)?;
        let Viewers { seats, sites } =
            Viewers::open(self.theatre.as_ref(), scenario, places, topology, room)?;
        let mut players = Players {
            seats: seats.into_iter().map(|viewer| viewer.map(Seat::Browser)).collect(),
            sites,
            rtsp: Vec::new(),
        };
        for (flow, (place, seat)) in places.flows.iter().zip(&mut players.seats).enumerate() {
            let app = scenario.groups[place.group].app;
            let App::Rtsp { media_mbps, client_buffer_s, transport } = app else { continue };
            let streams = self.streams.as_ref().context("nobody has prepared the streams")?;
            let log = room.logs.join(format!("live555-{flow}.log"));
            let origin = room.hosts.of(flow, topology);
            players.rtsp.push(streams.serve(origin, place.origin, &log)?);
            let directory = room.directory.join(format!("player-{flow}"));
            let way = match transport {
                Transport::Tcp => Way::Interleaved,
                Transport::Udp => Way::Datagrams { port: place.media_port },
            };
            let client = streams.client(media_mbps, client_buffer_s, way, &directory)?;
            *seat = Some(Seat::Stream(client));
        }
        Ok(players)
    }
}

impl Seat {
    /// Watches the flow from the beginning to the end; `None` when the run ended before.
    ///
    /// # Errors
    /// When nothing could be measured, or a connection did not use the congestion control that it should.
    pub fn watch(
        self,
        flow: &Flow<'_>,
        topology: &Topology,
        began: Instant,
    ) -> Result<Option<View>> {
        match self {
            Self::Browser(viewer) => viewers::watch(viewer, flow, began),
            Self::Stream(client) => client.watch(flow, topology, began),
        }
    }
}
