//! In the steady state a controller allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use millrace_cc::Time;
use millrace_replay::{ClosedLoop, Path, algorithms, unknown_path};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

const PACKET_BYTES: u64 = 1350;

#[test]
fn an_allocation_is_counted() {
    let before = allocations();
    let vector = std::hint::black_box(vec![1_u8; 100]);
    assert_eq!(allocations() - before, 1, "{}", vector.len());
}

#[test]
fn the_steady_state_allocates_nothing() {
    let mut allocating = Vec::new();
    for config in algorithms() {
        let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, 1));
        let mut path = ClosedLoop::new(Path::ORDINARY, PACKET_BYTES, Time::ZERO, 0);
        // 30 seconds and more: every window of time has been filled once.
        path.run_packets(&mut *controller, 300_000);
        let before = allocations();
        path.run_packets(&mut *controller, 100_000);
        let count = allocations() - before;
        if count > 0 {
            allocating.push(format!("{}: {count} in 100000 packets", config.name()));
        }
    }
    assert!(allocating.is_empty(), "{allocating:#?}");
}
