use std::{sync::TryLockError, thread};

use super::*;
use crate::{clock::ManualClock, identity::KeySigner, link};

fn receiving() -> Receiving {
    let ((incoming, _), (reports, _)) = (mpsc::channel(1), mpsc::channel(1));
    Receiving::new(Config::default(), Arc::new(ManualClock::new(0)), incoming, reports)
}

fn source(of: usize) -> Source {
    let peer = KeySigner::from_secret(&[7; 32]).unwrap().key().to_peer_id();
    let connection = ConnectionId::new_unchecked(of);
    Source { peer, connection, link: LinkId::of(connection) }
}

fn channel(receiving: &Receiving, source: Source) -> Arc<Channel> {
    Arc::new(Channel {
        granting: Mutex::new(Granting::new(16)),
        task: AtomicWaker::new(),
        gate: Mutex::new(()),
        superseded: AtomicBool::new(false),
        dropped: AtomicBool::new(false),
        activity: Arc::default(),
        refusals: receiving.refusals(source.peer, source.link),
        place: Arc::default(),
    })
}

fn hello(link: u64, index: u8) -> Hello {
    Hello { channel: link::Channel { index, pool: 4 }, link }
}

/// The first channel of a greater link is ending the old ones, one of which is just having a frame admitted, while the
/// second one is opened. What the second one brings must not be admitted before the old ones are ended.
#[test]
fn l3_8_no_channel_of_a_greater_link_is_open_before_those_of_the_lower_one_are_ended() {
    let (receiving, lower, greater) = (&receiving(), source(1), source(2));
    let [old, first, second] = &[lower, greater, greater].map(|source| channel(receiving, source));
    receiving.open(lower, hello(1, 1), Arc::downgrade(old)).unwrap();
    let (opened, seen) = std::sync::mpsc::channel();
    let ended = thread::scope(|scope| {
        let mut early = None;
        let admitted = old.unless_superseded(&mut || {
            scope.spawn(move || receiving.open(greater, hello(2, 0), Arc::downgrade(first)).unwrap());
            // Until the first one is past where the second one could open before it.
            loop {
                match receiving.registry.try_lock() {
                    Err(TryLockError::WouldBlock) => break,
                    Err(TryLockError::Poisoned(error)) => panic!("{error}"),
                    Ok(mut registry) => {
                        let lower = registry.control(&lower.peer, lower.link, Hello::control(4, 0));
                        if lower.err() == Some(Unopened::Superseded { greatest: 2 }) {
                            break;
                        }
                    }
                }
                thread::yield_now();
            }
            let opened = opened.clone();
            scope.spawn(move || {
                receiving.open(greater, hello(2, 1), Arc::downgrade(second)).unwrap();
                opened.send(old.is_superseded()).unwrap();
            });
            // Time to open for the second one, if nothing keeps it. Where something does, it is only time.
            early = seen.recv_timeout(Duration::from_millis(200)).ok();
        });
        assert!(admitted);
        early.unwrap_or_else(|| seen.recv().unwrap())
    });
    assert!(ended, "the second one is open while the old one has a frame admitted");
}

#[test]
fn l13_3_a_channel_that_ended_does_not_end_its_successor_when_its_task_is_done() {
    let (receiving, source) = (receiving(), source(1));
    let [first, second, third] = [(); 3].map(|()| channel(&receiving, source));
    receiving.open(source, hello(1, 0), Arc::downgrade(&first)).unwrap();
    let mut registered = Registered { receiving: &receiving, source, hello: hello(1, 0), closed: false };
    assert_eq!(registered.close(None), Some(LinkEnd::Closed));
    // It is opened again before the first one's task is done: its end is still being reported.
    assert!(receiving.open(source, hello(1, 0), Arc::downgrade(&second)).unwrap().first);
    drop(registered);
    let again = receiving.open(source, hello(1, 0), Arc::downgrade(&third));
    assert_eq!(again.err(), Some(Unopened::AlreadyOpen), "the second is open");
    let mut registered = Registered { receiving: &receiving, source, hello: hello(1, 0), closed: false };
    assert_eq!(registered.close(None), Some(LinkEnd::Closed), "and its end is said");
}
