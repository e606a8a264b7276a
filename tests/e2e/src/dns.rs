//! A name server that a test controls: it answers, says that there is no such name, or is silent.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks whether it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const TYPE_A: u16 = 1;
const TYPE_SOA: u16 = 6;
const TYPE_AAAA: u16 = 28;
const NEGATIVE_TTL_S: u32 = 20;
const NO_SUCH_NAME: u8 = 3;

/// What is said of a name.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Its addresses, with a TTL in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// Nothing.
    Silence,
}

impl Answer {
    /// One address.
    ///
    /// # Panics
    /// When `ip` is not an address.
    #[must_use]
    pub fn address(ip: &str) -> Self {
        Self::Addresses(vec![ip.parse().expect("an address")], 60)
    }
}

/// Names in lower case, without a dot at the end. One that begins with `*` is for all that end with
/// the rest. A name that is not there does not exist.
type Names = HashMap<String, Answer>;

/// A running name server on UDP; ends when it is dropped.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    names: Arc<Mutex<Names>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts one on a port of loopback.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(names: &[(&str, Answer)]) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
        Self::on(socket, names)
    }

    /// Starts one on a socket.
    ///
    /// # Panics
    /// When the socket is of no use.
    #[must_use]
    pub fn on(socket: UdpSocket, names: &[(&str, Answer)]) -> Self {
        socket.set_read_timeout(Some(CHECK_INTERVAL)).expect("a time-out");
        let address = socket.local_addr().expect("it is bound");
        let names = names.iter().map(|(name, answer)| ((*name).to_owned(), answer.clone()));
        let names = Arc::new(Mutex::new(names.collect::<Names>()));
        let (asked, stop) = (Arc::default(), Arc::<AtomicBool>::default());
        let thread = std::thread::spawn({
            let (names, asked, stop) = (names.clone(), Arc::clone(&asked), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = serve_one(&socket, &names, &asked);
                }
            }
        });
        Self { address, names, asked, stop, thread: Some(thread) }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers so from now on.
    pub fn set(&self, name: &str, answer: Answer) {
        lock(&self.names).insert(name.to_owned(), answer);
    }

    /// Questions about a name, packets that were sent again and both families included.
    #[must_use]
    pub fn asked(&self, name: &str) -> usize {
        lock(&self.asked).get(name).copied().unwrap_or(0)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve_one(
    socket: &UdpSocket,
    names: &Mutex<Names>,
    asked: &Mutex<HashMap<String, usize>>,
) -> io::Result<()> {
    let mut packet = [0; 1500];
    let (length, from) = socket.recv_from(&mut packet)?;
    let Some((name, question_type, end)) = question(&packet[..length]) else { return Ok(()) };
    *lock(asked).entry(name.clone()).or_default() += 1;
    let names = lock(names);
    let matches = |known: &&String| match known.strip_prefix('*') {
        Some(suffix) => name.ends_with(suffix),
        None => **known == name,
    };
    let (code, answers, ttl) = match names.keys().find(matches).map(|known| &names[known]) {
        Some(Answer::Silence) => return Ok(()),
        Some(Answer::Addresses(ips, ttl)) => (0, ips.as_slice(), *ttl),
        None => (NO_SUCH_NAME, &[][..], 0),
    };
    let answers: Vec<Vec<u8>> = answers
        .iter()
        .filter_map(|ip| match (ip, question_type) {
            (IpAddr::V4(ip), TYPE_A) => Some(ip.octets().to_vec()),
            (IpAddr::V6(ip), TYPE_AAAA) => Some(ip.octets().to_vec()),
            _ => None,
        })
        .collect();
    // A response (RFC 1035 §4.1.1) with recursion, one question and these answers.
    let mut response = packet[..2].to_vec();
    let negative = u8::from(answers.is_empty());
    response.extend([0x81, 0x80 | code, 0, 1, 0, answers.len() as u8, 0, negative, 0, 0]);
    response.extend(&packet[12..end]);
    for octets in answers {
        // The question's name (§4.1.4), its type, class IN.
        response.extend([0xc0, 12]);
        response.extend(question_type.to_be_bytes());
        response.extend(1_u16.to_be_bytes());
        response.extend(ttl.to_be_bytes());
        response.extend((octets.len() as u16).to_be_bytes());
        response.extend(octets);
    }
    if negative > 0 {
        // The zone's SOA, without which it may not be cached (RFC 2308 §5): no names, five numbers.
        response.extend([0xc0, 12]);
        response.extend(TYPE_SOA.to_be_bytes());
        response.extend(1_u16.to_be_bytes());
        response.extend(NEGATIVE_TTL_S.to_be_bytes());
        response.extend(22_u16.to_be_bytes());
        response.extend([0, 0]);
        for number in [1, 3600, 600, 86_400, NEGATIVE_TTL_S] {
            response.extend(number.to_be_bytes());
        }
    }
    socket.send_to(&response, from)?;
    Ok(())
}

/// The name and the type that a packet asks for, and where the question ends.
fn question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = packet.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let question_type = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), question_type, at + 4))
}
