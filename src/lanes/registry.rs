//! The links that peers have to this node, by the numbers that their openers gave them (law L3.8).
//!
//! **State.** Per peer: the greatest link number heard, the connection and pool size that go with it, what the link's
//! substreams share (`S`), whether its control substream was opened, and its open channels, each with a token `T` by which
//! it can be ended.
//!
//! **Transitions.** [`Registry::open`] takes a hello. A greater number than before starts a new link and hands back
//! the tokens of the old one's channels, to be ended; the same one adds a channel; a lower one, or the same on another
//! connection, is refused as superseded, with the number to exceed. [`Registry::control`] takes the hello of a control
//! substream: one for each link, after its first channel. [`Registry::close`] removes a channel.
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
use crate::link::Channel;

/// The links of peers `P` over connections `C`.
#[derive(Debug)]
pub(crate) struct Registry<P, C, T, S> {
    peers: HashMap<P, Link<C, T, S>>,
    connected: HashSet<P>,
}

#[derive(Debug)]
struct Link<C, T, S> {
    number: u64,
    connection: C,
    pool: u8,
    channels: [Option<T>; LANES],
    shared: S,
    /// Its control substream was opened.
    control: bool,
}

/// A channel was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened<C, T, S> {
    /// Whether it is the link's first.
    pub(crate) first: bool,
    /// What a lower link's channels leave: its connection and their tokens.
    pub(crate) superseded: Option<(C, Vec<T>)>,
    /// What the link's substreams share.
    pub(crate) shared: S,
    /// What those of a lower link shared, whether or not any is left.
    pub(crate) replaced: Option<S>,
}

/// A hello that opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unopened {
    Superseded { greatest: u64 },
    UnknownChannel,
    AlreadyOpen,
}

impl<P: Clone + Eq + Hash, C: Copy + Eq, T, S: Clone> Registry<P, C, T, S> {
    pub(crate) fn new() -> Self {
        Self { peers: HashMap::new(), connected: HashSet::new() }
    }

    /// Opens a channel. What the substreams of a new link share is made by `fresh`.
    pub(crate) fn open(
        &mut self,
        peer: &P,
        connection: C,
        hello: Hello,
        token: T,
        fresh: impl FnOnce() -> S,
    ) -> Result<Opened<C, T, S>, Unopened> {
        let Channel { index, pool } = hello.channel;
        let place = usize::from(index);
        if pool == 0 || usize::from(pool) > LANES || index >= pool {
            return Err(Unopened::UnknownChannel);
        }
        let (mut superseded, mut replaced) = (None, None);
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
                return Ok(Opened { first, superseded: None, shared: link.shared.clone(), replaced: None });
            }
            let tokens: Vec<_> = link.channels.iter_mut().filter_map(Option::take).collect();
            superseded = (!tokens.is_empty()).then_some((link.connection, tokens));
            replaced = Some(link.shared.clone());
        }
        let mut channels = std::array::from_fn(|_| None);
        if let Some(slot) = channels.get_mut(place) {
            *slot = Some(token);
        }
        let shared = fresh();
        let link = Link { number: hello.link, connection, pool, channels, shared: shared.clone(), control: false };
        self.peers.insert(peer.clone(), link);
        Ok(Opened { first: true, superseded, shared, replaced })
    }

    /// Opens the control substream of a link that has or had a channel, once: what the link's substreams share.
    pub(crate) fn control(&mut self, peer: &P, connection: C, hello: Hello) -> Result<S, Unopened> {
        let link = self.peers.get_mut(peer).ok_or(Unopened::UnknownChannel)?;
        if hello.link < link.number || (hello.link == link.number && link.connection != connection) {
            return Err(Unopened::Superseded { greatest: link.number });
        }
        if hello.link > link.number || hello.channel.pool != link.pool {
            return Err(Unopened::UnknownChannel);
        }
        if std::mem::replace(&mut link.control, true) {
            return Err(Unopened::AlreadyOpen);
        }
        Ok(link.shared.clone())
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

impl<C, T, S> Link<C, T, S> {
    fn is_empty(&self) -> bool {
        self.channels.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Registry<u8, char, u32, u32>;

    /// Opens a channel; what a new link shares is its first channel's token.
    fn open(
        registry: &mut Small,
        peer: u8,
        connection: char,
        hello: Hello,
        token: u32,
    ) -> Result<Opened<char, u32, u32>, Unopened> {
        registry.open(&peer, connection, hello, token, || token)
    }

    fn hello(link: u64, index: u8, pool: u8) -> Hello {
        Hello { channel: Channel { index, pool }, link }
    }

    #[test]
    fn l3_8_a_greater_number_ends_the_lanes_of_lower_ones_and_a_lower_one_is_refused() {
        let mut registry = Small::new();
        let fresh = |shared, first| Ok(Opened { first, superseded: None, shared, replaced: None });
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 0, 4), 50), fresh(50, true));
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 3, 4), 53), fresh(50, false));
        assert_eq!(
            open(&mut registry, 1, 'b', hello(6, 1, 4), 61),
            Ok(Opened { first: true, superseded: Some(('a', vec![50, 53])), shared: 61, replaced: Some(50) })
        );
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 1, 4), 51), Err(Unopened::Superseded { greatest: 6 }));
        assert!(!registry.close(&1, 'a', hello(5, 0, 4)), "its end changes nothing any more");
        assert_eq!(
            open(&mut registry, 2, 'c', hello(1, 0, 4), 10),
            fresh(10, true),
            "other peers number for themselves"
        );
    }

    #[test]
    fn l3_8_one_number_is_one_connection() {
        let mut registry = Small::new();
        open(&mut registry, 1, 'a', hello(5, 0, 4), 50).unwrap();
        assert_eq!(open(&mut registry, 1, 'b', hello(5, 1, 4), 51), Err(Unopened::Superseded { greatest: 5 }));
    }

    #[test]
    fn l3_1_channels_past_the_pool_and_pools_past_four_do_not_exist() {
        let mut registry = Small::new();
        for (index, pool) in [(4, 4), (1, 1), (0, 0), (0, 5), (255, 255)] {
            assert_eq!(open(&mut registry, 1, 'a', hello(5, index, pool), 0), Err(Unopened::UnknownChannel));
        }
        open(&mut registry, 1, 'a', hello(5, 0, 2), 0).unwrap();
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 1, 3), 0), Err(Unopened::UnknownChannel), "the pool changed");
    }

    #[test]
    fn a_channel_opens_once_at_a_time_and_again_after_it_closed() {
        let mut registry = Small::new();
        open(&mut registry, 1, 'a', hello(5, 2, 4), 1).unwrap();
        open(&mut registry, 1, 'a', hello(5, 3, 4), 2).unwrap();
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 2, 4), 3), Err(Unopened::AlreadyOpen));
        assert!(!registry.close(&1, 'a', hello(5, 2, 4)));
        assert!(open(&mut registry, 1, 'a', hello(5, 2, 4), 4).is_ok_and(|opened| !opened.first));
        assert!(!registry.close(&1, 'a', hello(5, 2, 4)));
        assert!(registry.close(&1, 'a', hello(5, 3, 4)), "the last one ends the link");
        assert!(!registry.close(&1, 'a', hello(5, 3, 4)), "once");
    }

    #[test]
    fn l3_8_a_number_outlives_its_channels_and_goes_with_the_last_connection() {
        let mut registry = Small::new();
        registry.connected(&1);
        open(&mut registry, 1, 'a', hello(6, 0, 4), 1).unwrap();
        registry.close(&1, 'a', hello(6, 0, 4));
        assert_eq!(open(&mut registry, 1, 'a', hello(5, 0, 4), 2), Err(Unopened::Superseded { greatest: 6 }));
        registry.disconnected(&1);
        assert!(registry.peers.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_a_peer_whose_channels_end_after_its_connections() {
        let mut registry = Small::new();
        registry.connected(&1);
        open(&mut registry, 1, 'a', hello(6, 0, 4), 1).unwrap();
        registry.disconnected(&1);
        assert_eq!(open(&mut registry, 1, 'b', hello(5, 0, 4), 2), Err(Unopened::Superseded { greatest: 6 }));
        assert!(registry.close(&1, 'a', hello(6, 0, 4)));
        assert!(registry.peers.is_empty() && registry.connected.is_empty());
    }

    #[test]
    fn l4_7_a_link_has_one_control_substream_after_its_first_channel() {
        let mut registry = Small::new();
        let control =
            |registry: &mut Small, connection, pool, link| registry.control(&1, connection, Hello::control(pool, link));
        registry.connected(&1);
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::UnknownChannel), "no channel yet");
        open(&mut registry, 1, 'a', hello(5, 0, 4), 50).unwrap();
        assert_eq!(control(&mut registry, 'a', 4, 4), Err(Unopened::Superseded { greatest: 5 }));
        assert_eq!(control(&mut registry, 'b', 4, 5), Err(Unopened::Superseded { greatest: 5 }));
        assert_eq!(control(&mut registry, 'a', 4, 6), Err(Unopened::UnknownChannel), "it begins no link");
        assert_eq!(control(&mut registry, 'a', 3, 5), Err(Unopened::UnknownChannel), "the pool changed");
        assert_eq!(control(&mut registry, 'a', 4, 5), Ok(50));
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::AlreadyOpen));
        assert!(registry.close(&1, 'a', hello(5, 0, 4)), "it is no channel, and keeps no link open");
        open(&mut registry, 1, 'a', hello(5, 0, 4), 51).unwrap();
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::AlreadyOpen), "once a link");
        assert_eq!(open(&mut registry, 1, 'b', hello(6, 0, 4), 60).unwrap().replaced, Some(50));
        assert_eq!(control(&mut registry, 'b', 4, 6), Ok(60));
    }
}
