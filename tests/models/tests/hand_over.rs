//! Hand-overs between threads, in many orders.

use millrace_mcc::queue::pair;
use millrace_mcc::{PathUpdate, SwitchRequest};
use millrace_models::published::Published;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

/// Orders of threads that each test tries.
const ORDERS: usize = 2000;

#[test]
fn woken_worker_has_the_configuration_that_it_was_woken_for() {
    let reload = || {
        let (configuration, woken) = (Published::new(0), Arc::new(AtomicBool::new(false)));
        let worker = {
            let (configuration, woken) = (configuration.clone(), woken.clone());
            thread::spawn(move || {
                let mut seen = *configuration.get();
                while seen < 3 {
                    if woken.swap(false, Ordering::AcqRel) {
                        let newest = *configuration.get();
                        assert!(newest >= seen, "{newest} after {seen}");
                        seen = newest;
                    }
                    thread::yield_now();
                }
            })
        };
        for number in 1..=3 {
            configuration.set(number);
            woken.store(true, Ordering::Release);
        }
        worker.join().unwrap();
    };
    shuttle::check_random(reload, ORDERS);
}

#[test]
fn selector_gets_each_update_once_in_order_or_it_counts_as_dropped() {
    let exchange = || {
        let (mut agent, mut selector) = pair(2, 1);
        let worker = thread::spawn(move || {
            let mut taken = 0;
            for connection in 1..=4 {
                taken += u64::from(agent.try_send(PathUpdate::Closed { connection }));
                thread::yield_now();
            }
            assert_eq!(taken + agent.dropped(), 4);
            taken
        });
        let mut seen = Vec::new();
        loop {
            let is_last = selector.is_abandoned();
            while let Some(PathUpdate::Closed { connection }) = selector.next_update() {
                seen.push(connection);
                thread::yield_now();
            }
            if is_last {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(seen.len() as u64, worker.join().unwrap());
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    };
    shuttle::check_random(exchange, ORDERS);
}

#[test]
fn worker_gets_each_switch_request_once() {
    let exchange = || {
        let (mut agent, mut selector) = pair(1, 2);
        let worker = thread::spawn(move || {
            let mut seen = 0;
            while seen < 3 {
                seen += usize::from(agent.next_request().is_some());
                thread::yield_now();
            }
        });
        let request = SwitchRequest { connection: 1, algorithm: 3, is_new_path: false };
        let mut sent = 0;
        while sent < 3 {
            sent += usize::from(selector.try_send(request));
            thread::yield_now();
        }
        worker.join().unwrap();
    };
    shuttle::check_random(exchange, ORDERS);
}
