//! What the clients do, and the origin's part of it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_e2e::listeners::TestListener;
use millrace_e2e::tcp;
use socket2::Socket;

use crate::exchange::{Course, Ending, Plan, Way, exchange};
use crate::random::Random;
use crate::tally::{Side, Tally};

const REQUEST_BYTES: usize = 48;
/// "No reset" in a request.
const NEVER: u64 = u64::MAX;
/// One flow of so many gets a wrong byte, when that is asked for.
const WRONG_EVERY: u64 = 100;

/// A way in.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An address that is intercepted.
    Intercepted(SocketAddr),
    /// One of the client's own listeners, and the destination.
    Native(TestListener, String),
}

impl Entry {
    fn open(&self) -> Result<Socket, String> {
        match self {
            Self::Intercepted(to) => tcp::connect(*to).map_err(|error| error.to_string()),
            Self::Native(listener, to) => {
                listener.open(to).map_err(|refusal| format!("{refusal:?}"))
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Intercepted(to) => format!("interception of {to}"),
            Self::Native(listener, _) => format!("{listener:?}"),
        }
    }
}

/// What a client asks of the origin.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    up_bytes: u64,
    down_bytes: u64,
    bytes_per_s: u64,
    reset_at: u64,
    /// The origin answers only after the client's end.
    after_peer: bool,
    half_close: bool,
    client_half_closes: bool,
}

impl Request {
    fn draw(id: u64, random: &mut Random) -> Self {
        let size = |random: &mut Random| match random.below(40) {
            0 => 500_000 + random.below(1_500_000),
            1..=9 => random.below(400_000),
            10 => 0,
            _ => random.below(60_000),
        };
        let (mut up_bytes, mut down_bytes) = (0, 0);
        match random.below(10) {
            0..=5 => down_bytes = size(random),
            6..=7 => up_bytes = size(random),
            _ => (up_bytes, down_bytes) = (size(random), size(random)),
        }
        let after_peer = random.once_in(4);
        Self {
            id,
            up_bytes,
            down_bytes,
            bytes_per_s: 20_000 + random.below(130_000),
            reset_at: match random.once_in(12) {
                true => random.below(up_bytes + down_bytes + 1),
                false => NEVER,
            },
            after_peer,
            half_close: random.once_in(2),
            client_half_closes: after_peer || random.once_in(2),
        }
    }

    fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let flags = u64::from(self.after_peer)
            | u64::from(self.half_close) << 1
            | u64::from(self.client_half_closes) << 2;
        let fields =
            [self.id, self.up_bytes, self.down_bytes, self.bytes_per_s, self.reset_at, flags];
        let mut bytes = [0; REQUEST_BYTES];
        for (place, field) in bytes.chunks_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let field = |n: usize| {
            let field = bytes[8 * n..8 * n + 8].try_into();
            u64::from_be_bytes(field.expect("eight bytes are eight bytes"))
        };
        Self {
            id: field(0),
            up_bytes: field(1),
            down_bytes: field(2),
            bytes_per_s: field(3),
            reset_at: field(4),
            after_peer: field(5) & 1 != 0,
            half_close: field(5) & 2 != 0,
            client_half_closes: field(5) & 4 != 0,
        }
    }

    fn up(&self) -> Way {
        Way { seed: self.id << 1, bytes: self.up_bytes }
    }

    fn down(&self) -> Way {
        Way { seed: self.id << 1 | 1, bytes: self.down_bytes }
    }
}

/// What goes wrong at the ends of flows.
#[derive(Clone, Debug, Default)]
pub struct EndFaults {
    /// Ends disappear in place of every other reset, from this network namespace.
    pub vanish_from: Option<String>,
}

impl EndFaults {
    fn vanishes(&self, random: &mut Random) -> Option<String> {
        self.vanish_from.clone().filter(|_| random.once_in(2))
    }

    fn pauses(&self, random: &mut Random, bytes: u64) -> Vec<(u64, Duration)> {
        match &self.vanish_from {
            // A viewer that goes away from the screen.
            Some(_) if random.once_in(20) => {
                vec![(1 + random.below(bytes + 1), random.ms(10_000..40_000))]
            }
            _ => pauses(random, bytes),
        }
    }
}

fn pauses(random: &mut Random, bytes: u64) -> Vec<(u64, Duration)> {
    if !random.once_in(4) {
        return Vec::new();
    }
    let mut pauses: Vec<_> =
        (0..random.below(3)).map(|_| (1 + random.below(bytes + 1), random.ms(50..3000))).collect();
    pauses.sort();
    pauses
}

/// One client's life.
pub fn client(
    number: usize,
    entry: &Entry,
    mut random: Random,
    faults: &EndFaults,
    stop: &AtomicBool,
    tally: &Tally,
) {
    let mut flows = 0;
    while !stop.load(Ordering::Relaxed) {
        sleep(random.ms(50..1500));
        flows += 1;
        let id = (number as u64) << 32 | flows;
        let started = Instant::now();
        tally.open(id, entry.name());
        let flow = match entry.open() {
            Ok(flow) => flow,
            Err(why) => {
                tally.refuse(id, started, &why);
                continue;
            }
        };
        if random.once_in(30) {
            // Opened, and nothing said: ended in order, or not.
            sleep(random.ms(1..1000));
            if random.once_in(2) {
                tcp::reset(flow);
            }
            tally.leave_silently(id);
            continue;
        }
        let request = Request::draw(id, &mut random);
        let course = run(flow, &request, &mut random, faults, stop);
        tally.end(id, Side::Client, started, course);
    }
}

fn run(
    mut flow: Socket,
    request: &Request,
    random: &mut Random,
    faults: &EndFaults,
    stop: &AtomicBool,
) -> Result<Course, String> {
    if let Err(error) = flow.write_all(&request.bytes()) {
        let ending = Ending::Cut(error.kind());
        return Ok(Course { ending, received: 0, said_end: false });
    }
    let both = request.up_bytes + request.down_bytes;
    let plan = Plan {
        send: request.up(),
        receive: request.down(),
        bytes_per_s: request.bytes_per_s,
        half_close: request.client_half_closes,
        after_peer: false,
        reset_at: random.once_in(6).then(|| random.below(both + 1)),
        vanishes_from: faults.vanishes(random),
        pauses: faults.pauses(random, request.down_bytes),
        wrong_at: None,
    };
    exchange(flow, &plan, stop)
}

/// The origin.
pub fn serve(mut flow: Socket, tally: &Tally, faults: &EndFaults, wrong_bytes: bool) {
    let started = Instant::now();
    let mut request = [0; REQUEST_BYTES];
    if flow.read_exact(&mut request).is_err() {
        return;
    }
    let request = Request::parse(&request);
    let mut random = Random::new(request.id);
    tally.arrive(request.id);
    let wrong = wrong_bytes && request.down_bytes > 0 && random.once_in(WRONG_EVERY);
    let plan = Plan {
        send: request.down(),
        receive: request.up(),
        bytes_per_s: request.bytes_per_s,
        half_close: request.half_close,
        after_peer: request.after_peer,
        reset_at: (request.reset_at != NEVER).then_some(request.reset_at),
        vanishes_from: faults.vanishes(&mut random),
        pauses: faults.pauses(&mut random, request.up_bytes),
        wrong_at: wrong.then(|| random.below(request.down_bytes)),
    };
    let course = exchange(flow, &plan, &AtomicBool::new(false));
    tally.end(request.id, Side::Origin, started, course);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_they_were_sent() {
        let request = Request::draw(0x12_0000_0034, &mut Random::new(5));
        let read = Request::parse(&request.bytes());
        assert_eq!(format!("{request:?}"), format!("{read:?}"));
    }
}
