//! HTTP datagrams: capsules on a stream, however it is cut, and the heads of DATAGRAM frames. Input:
//! a seed for the cuts, how often what follows is repeated, and the bytes themselves.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use millrace_wire::capsule::{CapsuleError, Capsules, DATAGRAM, MAX_DATAGRAM_BYTES, datagram};
use millrace_wire::http_datagram::{UDP_CONTEXT, head, parse, parse_context};
use millrace_wire::repair::{
    BlockHeader, RepairHeader, RepairMethods, put_second_part, second_parts,
};

/// Longest stream: more than two of the longest capsules.
const MAX_STREAM_BYTES: usize = 2 * MAX_DATAGRAM_BYTES + 1024;
/// Longest stream that is also read byte by byte; the long ones would take all the time.
const MAX_BYTEWISE_BYTES: usize = 2048;

fuzz_target!(|input: &[u8]| {
    let [seed, repeats, bytes @ ..] = input else { return };
    frame(bytes);
    repair(bytes);
    // Long capsules from short inputs.
    let mut stream = bytes.repeat(usize::from(*repeats).max(1));
    stream.truncate(MAX_STREAM_BYTES);
    let (want, end) = expected(&stream);
    read([stream.as_slice()], &want, end);
    if stream.len() <= MAX_BYTEWISE_BYTES {
        read(stream.chunks(1), &want, end);
    }
    read(Pieces { rest: &stream, state: u32::from(*seed) }, &want, end);
    for it in &want {
        assert_eq!(expected(&datagram(it)), (vec![*it], Ok(())));
        if let Some((context, payload)) = parse_context(it) {
            assert!(it.ends_with(payload) && it.len() - payload.len() == varint_bytes(it));
            assert!(context < 1 << 62);
        } else {
            assert!(it.len() < it.first().map_or(1, |_| varint_bytes(it)));
        }
    }
});

/// Reads a stream in pieces: the datagrams and the end are those that are wanted, and no more is
/// kept than has come and is allowed.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    want: &[&[u8]],
    end: Result<(), CapsuleError>,
) {
    let mut capsules = Capsules::default();
    let (mut number, mut fed) = (0, 0);
    let before = HEAP.start();
    let got = pieces.into_iter().try_for_each(|piece| {
        capsules.read(piece, |it| {
            assert_eq!(it, want[number]);
            number += 1;
        })?;
        fed += piece.len();
        // A vector that grows is there twice for a moment, once with twice the room. Its first
        // 2 KiB are there at once, and the head has a few bytes of its own.
        let most = 3 * fed.min(MAX_DATAGRAM_BYTES) + 2048 + 64;
        let peak = HEAP.peak.load(Relaxed) - before;
        assert!(peak <= most, "{peak} bytes are kept of {fed}");
        Ok(())
    });
    assert_eq!(got.and_then(|()| capsules.end()), end);
    assert_eq!(number, want.len());
}

/// What a stream holds, by RFC 9297, Section 3.2, with all of it at hand.
fn expected(mut bytes: &[u8]) -> (Vec<&[u8]>, Result<(), CapsuleError>) {
    let mut datagrams = Vec::new();
    while !bytes.is_empty() {
        let Some((kind, rest)) = varint(bytes) else {
            return (datagrams, Err(CapsuleError::Truncated));
        };
        let Some((length, rest)) = varint(rest) else {
            return (datagrams, Err(CapsuleError::Truncated));
        };
        if kind == DATAGRAM && length > MAX_DATAGRAM_BYTES as u64 {
            return (datagrams, Err(CapsuleError::TooLong(length)));
        }
        let value = usize::try_from(length).ok().and_then(|it| rest.split_at_checked(it));
        let Some((value, rest)) = value else { return (datagrams, Err(CapsuleError::Truncated)) };
        if kind == DATAGRAM {
            datagrams.push(value);
        }
        bytes = rest;
    }
    (datagrams, Ok(()))
}

/// A datagram of the repair context: what is taken apart is what it is put together from.
fn repair(bytes: &[u8]) {
    match RepairHeader::parse(bytes) {
        Some((header, payload)) => {
            assert_eq!([&header.to_bytes()[..], payload].concat(), bytes);
            let mut again = Vec::new();
            for (first_part, part) in second_parts(payload) {
                put_second_part(&mut again, first_part, part);
            }
            assert!(payload.len() >= again.len());
            assert!(second_parts(&again).eq(second_parts(payload)));
        }
        None => assert!(bytes.len() < RepairHeader::BYTES),
    }
    if let Some((header, symbol)) = BlockHeader::parse(bytes) {
        assert_eq!([&header.to_bytes()[..], symbol].concat(), bytes);
        assert!(header.index < header.repairs && symbol.len() % 2 == 0);
    }
    let methods = RepairMethods::parse(bytes);
    assert_eq!(RepairMethods::parse(methods.to_string().as_bytes()), methods);
}

/// A DATAGRAM frame: what is taken apart is what it is put together from.
fn frame(bytes: &[u8]) {
    let quarter = varint(bytes).filter(|(quarter, _)| *quarter < 1 << 60);
    let Ok((stream, rest)) = parse(bytes) else { return assert_eq!(quarter, None) };
    assert_eq!(quarter, Some((stream / 4, rest)));
    assert_eq!(stream % 4, 0);
    let again = [head(stream, UDP_CONTEXT).as_bytes(), rest].concat();
    let (same, after) = parse(&again).expect("it was made to be read");
    assert_eq!((same, parse_context(after)), (stream, Some((UDP_CONTEXT, rest))));
}

/// RFC 9000, Section 16.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.first()?;
    let (number, rest) = bytes.split_at_checked(varint_bytes(bytes))?;
    let value = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some((value & (u64::MAX >> (66 - 8 * number.len())), rest))
}

fn varint_bytes(bytes: &[u8]) -> usize {
    1 << (bytes[0] >> 6)
}

/// Cuts of all sizes.
struct Pieces<'a> {
    rest: &'a [u8],
    state: u32,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // The generator of Numerical Recipes.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bits = self.state >> 28;
        let bytes = (self.state >> 8) as usize & ((2 << bits) - 1);
        let (piece, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        let at_end = self.rest.is_empty();
        self.rest = rest;
        (!at_end).then_some(piece)
    }
}

/// Counts what is allocated.
struct Heap {
    now: AtomicUsize,
    peak: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) };

impl Heap {
    fn start(&self) -> usize {
        let now = self.now.load(Relaxed);
        self.peak.store(now, Relaxed);
        now
    }

    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(now, Relaxed);
    }
}

// SAFETY: the system's allocator does it; beside it only numbers are counted.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(block, layout) }
    }
}
