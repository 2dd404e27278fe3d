//! The links that peers have to this node, by the numbers that their openers gave them (law L3.8).
//!
//! **State.** Per peer: the greatest link number heard, the connection and pool size that go with it, and its open
//! channels, each with a token `T` by which it can be ended.
//!
//! **Transitions.** [`Registry::open`] takes a hello. A greater number than before starts a new link and hands back
//! the tokens of the old one's channels, to be ended; the same one adds a channel; a lower one, or the same on another
//! connection, is refused as superseded, with the number to exceed. [`Registry::close`] removes a channel.
//! A number is kept as long as its peer has a connection, which could still carry a lower one, or a channel that has not
//! ended, whichever goes last.
//!
//! **Failures.** A channel that the pool does not have, a pool of other than 1 to 4 or of another size than the link
//! began with, and a channel that is open already, each refused by name. Entries are bounded by connected peers, and
//! channels by the pool.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use super::{framing::Hello, scheduler::LANES};
use crate::link::{Channel, NoSlot};

/// The links of peers `P` over connections `C`.
#[derive(Debug)]
pub(crate) struct Registry<P, C, T> {
    peers: HashMap<P, Link<C, T>>,
    connected: HashSet<P>,
}

#[derive(Debug)]
struct Link<C, T> {
    number: u64,
    connection: C,
    pool: u8,
    channels: [Option<T>; LANES],
}

/// A channel was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened<C, T> {
    /// Whether it is the link's first.
    pub(crate) first: bool,
    /// What a lower link's channels leave: its connection and their tokens.
    pub(crate) superseded: Option<(C, Vec<T>)>,
}

/// A hello that opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unopened {
    Superseded {
        greatest: u64,
    },
    UnknownChannel,
    AlreadyOpen,
    /// Not the registry's to say.
    NoSlot(NoSlot),
}

impl From<NoSlot> for Unopened {
    fn from(error: NoSlot) -> Self {
        Self::NoSlot(error)
    }
}

impl<P: Clone + Eq + Hash, C: Copy + Eq, T> Registry<P, C, T> {
    pub(crate) fn new() -> Self {
        Self { peers: HashMap::new(), connected: HashSet::new() }
    }

    pub(crate) fn open(&mut self, peer: &P, connection: C, hello: Hello, token: T) -> Result<Opened<C, T>, Unopened> {
        let Channel { index, pool } = hello.channel;
        let place = usize::from(index);
        if pool == 0 || usize::from(pool) > LANES || index >= pool {
            return Err(Unopened::UnknownChannel);
        }
        let mut superseded = None;
        if let Some(link) = self.peers.get_mut(peer) {
            if hello.link < link.number || (hello.link == link.number && link.connection != connection) {
                return Err(Unopened::Superseded { greatest: link.number });
            }
            if hello.link == link.number {
                if pool != link.pool {
                    return Err(Unopened::UnknownChannel);
                }
                let first = link.is_empty();
                let slot = link.channels.get_mut(place).ok_or(Unopened::UnknownChannel)?;
                if slot.is_some() {
                    return Err(Unopened::AlreadyOpen);
                }
                *slot = Some(token);
                return Ok(Opened { first, superseded: None });
            }
            let tokens: Vec<_> = link.channels.iter_mut().filter_map(Option::take).collect();
            superseded = (!tokens.is_empty()).then_some((link.connection, tokens));
        }
        let mut channels = std::array::from_fn(|_| None);
        if let Some(slot) = channels.get_mut(place) {
            *slot = Some(token);
        }
        self.peers.insert(peer.clone(), Link { number: hello.link, connection, pool, channels });
        Ok(Opened { first: true, superseded })
    }

    /// Removes a channel. Whether it was the last one of a link that is still the peer's greatest.
    pub(crate) fn close(&mut self, peer: &P, connection: C, hello: Hello) -> bool {
        let Some(link) = self.peers.get_mut(peer) else { return false };
        if link.number != hello.link || link.connection != connection {
            return false;
        }
        let removed = link.channels.get_mut(usize::from(hello.channel.index)).and_then(Option::take);
        let last = removed.is_some() && link.is_empty();
        self.forget_if_gone(peer);
        last
    }

    /// `peer` has a connection.
    pub(crate) fn connected(&mut self, peer: &P) {
        self.connected.insert(peer.clone());
    }

    /// No connection to `peer` is left.
    pub(crate) fn disconnected(&mut self, peer: &P) {
        self.connected.remove(peer);
        self.forget_if_gone(peer);
    }

    fn forget_if_gone(&mut self, peer: &P) {
        if !self.connected.contains(peer) && self.peers.get(peer).is_some_and(Link::is_empty) {
            self.peers.remove(peer);
        }
    }
}

impl<C, T> Link<C, T> {
    fn is_empty(&self) -> bool {
        self.channels.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Registry<u8, char, u32>;

    fn hello(link: u64, index: u8, pool: u8) -> Hello {
        Hello { channel: Channel { index, pool }, link }
    }

    #[test]
    fn l3_8_a_greater_number_ends_the_lanes_of_lower_ones_and_a_lower_one_is_refused() {
        let mut registry = Small::new();
        let fresh = |first| Ok(Opened { first, superseded: None });
        assert_eq!(registry.open(&1, 'a', hello(5, 0, 4), 50), fresh(true));
        assert_eq!(registry.open(&1, 'a', hello(5, 3, 4), 53), fresh(false));
        assert_eq!(
            registry.open(&1, 'b', hello(6, 1, 4), 61),
            Ok(Opened { first: true, superseded: Some(('a', vec![50, 53])) })
        );
        assert_eq!(registry.open(&1, 'a', hello(5, 1, 4), 51), Err(Unopened::Superseded { greatest: 6 }));
        assert!(!registry.close(&1, 'a', hello(5, 0, 4)), "its end changes nothing any more");
        assert_eq!(registry.open(&2, 'c', hello(1, 0, 4), 10), fresh(true), "other peers number for themselves");
    }

    #[test]
    fn l3_8_one_number_is_one_connection() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 0, 4), 50).unwrap();
        assert_eq!(registry.open(&1, 'b', hello(5, 1, 4), 51), Err(Unopened::Superseded { greatest: 5 }));
    }

    #[test]
    fn l3_1_channels_past_the_pool_and_pools_past_four_do_not_exist() {
        let mut registry = Small::new();
        for (index, pool) in [(4, 4), (1, 1), (0, 0), (0, 5), (255, 255)] {
            assert_eq!(registry.open(&1, 'a', hello(5, index, pool), 0), Err(Unopened::UnknownChannel));
        }
        registry.open(&1, 'a', hello(5, 0, 2), 0).unwrap();
        assert_eq!(registry.open(&1, 'a', hello(5, 1, 3), 0), Err(Unopened::UnknownChannel), "the pool changed");
    }

    #[test]
    fn a_channel_opens_once_at_a_time_and_again_after_it_closed() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 2, 4), 1).unwrap();
        registry.open(&1, 'a', hello(5, 3, 4), 2).unwrap();
        assert_eq!(registry.open(&1, 'a', hello(5, 2, 4), 3), Err(Unopened::AlreadyOpen));
        assert!(!registry.close(&1, 'a', hello(5, 2, 4)));
        assert_eq!(registry.open(&1, 'a', hello(5, 2, 4), 4), Ok(Opened { first: false, superseded: None }));
        assert!(!registry.close(&1, 'a', hello(5, 2, 4)));
        assert!(registry.close(&1, 'a', hello(5, 3, 4)), "the last one ends the link");
        assert!(!registry.close(&1, 'a', hello(5, 3, 4)), "once");
    }

    #[test]
    fn l3_8_a_number_outlives_its_channels_and_goes_with_the_last_connection() {
        let mut registry = Small::new();
        registry.connected(&1);
        registry.open(&1, 'a', hello(6, 0, 4), 1).unwrap();
        registry.close(&1, 'a', hello(6, 0, 4));
        assert_eq!(registry.open(&1, 'a', hello(5, 0, 4), 2), Err(Unopened::Superseded { greatest: 6 }));
        registry.disconnected(&1);
        assert!(registry.peers.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_a_peer_whose_channels_end_after_its_connections() {
        let mut registry = Small::new();
        registry.connected(&1);
        registry.open(&1, 'a', hello(6, 0, 4), 1).unwrap();
        registry.disconnected(&1);
        assert_eq!(registry.open(&1, 'b', hello(5, 0, 4), 2), Err(Unopened::Superseded { greatest: 6 }));
        assert!(registry.close(&1, 'a', hello(6, 0, 4)));
        assert!(registry.peers.is_empty() && registry.connected.is_empty());
    }
}
