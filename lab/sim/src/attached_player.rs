use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::Time;

use crate::player::{PlayerAction, PlayerOutcome, PlayerSample, REQUEST_DELAY, VirtualPlayer};
use crate::sender::SimulatedSender;
use crate::{DataSource, FlowSetup};

/// The player at a flow's receiver, and what it has asked for that has not reached the sender.
#[derive(Debug)]
pub(crate) struct AttachedPlayer {
    start: Time,
    /// The session ends with the flow.
    stop: Option<Time>,
    player: VirtualPlayer,
    /// In order of time. A player has one request at a time, so there are few.
    under_way: VecDeque<(u64, PlayerAction)>,
}

impl AttachedPlayer {
    /// `None` for a flow without a player.
    pub(crate) fn of(flow: &FlowSetup) -> Option<Self> {
        let DataSource::Player(setup) = &flow.source else { return None };
        Some(Self {
            start: Time::ZERO + flow.start,
            stop: flow.stop.map(|stop| Time::ZERO + stop),
            player: VirtualPlayer::new(setup.clone()),
            under_way: VecDeque::new(),
        })
    }

    /// Time since the play request.
    fn since_start(&self, now: Time) -> Duration {
        let at = self.stop.map_or(now, |stop| stop.min(now));
        at - self.start.min(at)
    }

    /// When something is due: at the player, or at the sender.
    pub(crate) fn next_ns(&self) -> u64 {
        let player_ns = (self.start + self.player.next_wake()).as_nanos();
        self.under_way.front().map_or(player_ns, |(at_ns, _)| player_ns.min(*at_ns))
    }

    /// So much of a response has arrived in order.
    pub(crate) fn on_bytes(&mut self, now: Time, (number, bytes): (u64, u64), back_ns: u64) {
        self.player.on_bytes(self.since_start(now), number, bytes);
        self.send_actions(now, back_ns);
    }

    /// Does what is due. What the player asks for takes `back_ns` on the way back to the sender. Returns whether the
    /// sender has been told something.
    pub(crate) fn advance_to(
        &mut self,
        now: Time,
        back_ns: u64,
        sender: &mut SimulatedSender,
    ) -> bool {
        self.player.advance_to(self.since_start(now));
        self.send_actions(now, back_ns);
        let mut has_told = false;
        while let Some((_, action)) =
            self.under_way.pop_front_if(|(at_ns, _)| *at_ns <= now.as_nanos())
        {
            has_told = true;
            match action {
                PlayerAction::Request { number, bytes, needs } => {
                    sender.respond(now, number, bytes, &needs);
                }
                PlayerAction::Cancel { number } => sender.cancel(number),
            }
        }
        has_told
    }

    fn send_actions(&mut self, now: Time, back_ns: u64) {
        let at_ns = now.as_nanos() + back_ns + REQUEST_DELAY.as_nanos() as u64;
        // On a path that becomes shorter nothing overtakes.
        let at_ns = self.under_way.back().map_or(at_ns, |(last_ns, _)| at_ns.max(*last_ns));
        self.under_way.extend(self.player.take_actions().map(|action| (at_ns, action)));
    }

    pub(crate) fn sample(&mut self, now: Time) -> PlayerSample {
        self.player.sample(self.since_start(now))
    }

    pub(crate) fn outcome(&self, end: Time) -> PlayerOutcome {
        self.player.outcome(self.since_start(end))
    }
}
