//! The links that peers have to this node, by the numbers that their openers gave them (law L3.8).
//!
//! **State.** Per peer: the greatest link number heard, the connection and pool size that go with it, what it broke, what
//! the link's substreams share (`S`), whether its control substream was opened, and
//! for each of its channels the token `T` of the latest that was opened, whether that is still open or not: frames of it
//! may still wait to be admitted after it ended.
//!
//! **Transitions.** [`Registry::open`] takes a hello. A greater number than before starts a new link and hands back
//! the tokens of the old one's channels, to be ended; the same one adds a channel, and hands back the token of the one
//! that it replaces; a lower one, or the same on another connection, is refused as superseded, with the number to
//! exceed. [`Registry::control`] takes the hello of a control substream: one for each link, after its first channel.
//! [`Registry::close`] ends a channel, and says how its link ended with the last one.
//! A number is kept as long as its peer has a connection, which could still carry a lower one, or a channel that has not
//! ended, or frames of one that were not admitted yet, whichever goes last.
//!
//! **Failures.** A channel that the pool does not have, a pool of other than 1 to 4 or of another size than the link
//! began with, and a channel that is open already, each refused by name. Entries are bounded by connected peers, and
//! by those who have left frames here; of those who left nothing, at most as many again and [`SWEEP_AT`] are forgotten
//! late. Channels are bounded by the pool.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use super::{
    event::{LinkEnd, Violation},
    framing::Hello,
    scheduler::LANES,
};
use crate::link::{Channel, NoSlot};

/// How many peers without a connection may be remembered before it is looked whether they left anything.
pub(crate) const SWEEP_AT: usize = 64;

/// What a channel can be ended by.
pub(crate) trait Token {
    /// Whether nothing is left of the channel: no frame of it can still be admitted.
    fn is_over(&self) -> bool;
}

/// The links of peers `P` over connections `C`.
#[derive(Debug)]
pub(crate) struct Registry<P, C, T, S> {
    peers: HashMap<P, Link<C, T, S>>,
    connected: HashSet<P>,
    /// Those without a connection who may have left frames here.
    lingering: HashSet<P>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Link<C, T, S> {
    number: u64,
    connection: C,
    pool: u8,
    channels: [Option<Entry<T>>; LANES],
    broken: Option<Violation>,
    shared: S,
    /// Its control substream was opened.
    control: bool,
}

#[derive(Debug)]
struct Entry<T> {
    token: T,
    open: bool,
}

/// A channel was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened<C, T, S> {
    /// Whether it is the link's first.
    pub(crate) first: bool,
    /// The connection of a lower link that had channels open, and has none any more.
    pub(crate) superseded: Option<C>,
    /// The tokens of the channels that it replaces.
    pub(crate) ended: Vec<T>,
    /// What the link's substreams share.
    pub(crate) shared: S,
    /// What those of a lower link shared, whether or not any is left.
    pub(crate) replaced: Option<S>,
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

impl<P: Clone + Eq + Hash, C: Copy + Eq, T: Token, S: Clone> Registry<P, C, T, S> {
    pub(crate) fn new() -> Self {
        Self { peers: HashMap::new(), connected: HashSet::new(), lingering: HashSet::new(), sweep_at: SWEEP_AT }
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
        let entry = Entry { token, open: true };
        let (mut superseded, mut ended, mut replaced) = (None, Vec::new(), None);
        if let Some(link) = self.peers.get_mut(peer) {
            if hello.link < link.number || (hello.link == link.number && link.connection != connection) {
                return Err(Unopened::Superseded { greatest: link.number });
            }
            if hello.link == link.number {
                if pool != link.pool {
                    return Err(Unopened::UnknownChannel);
                }
                let first = link.is_closed();
                let slot = link.channels.get_mut(place).ok_or(Unopened::UnknownChannel)?;
                if slot.as_ref().is_some_and(|entry| entry.open) {
                    return Err(Unopened::AlreadyOpen);
                }
                ended.extend(slot.replace(entry).map(|entry| entry.token));
                return Ok(Opened { first, superseded, ended, shared: link.shared.clone(), replaced });
            }
            superseded = (!link.is_closed()).then_some(link.connection);
            replaced = Some(link.shared.clone());
            ended.extend(link.channels.iter_mut().filter_map(Option::take).map(|entry| entry.token));
        }
        let mut channels = std::array::from_fn(|_| None);
        if let Some(slot) = channels.get_mut(place) {
            *slot = Some(entry);
        }
        let shared = fresh();
        let link = Link {
            number: hello.link,
            connection,
            pool,
            channels,
            broken: None,
            shared: shared.clone(),
            control: false,
        };
        self.peers.insert(peer.clone(), link);
        Ok(Opened { first: true, superseded, ended, shared, replaced })
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

    /// Ends a channel, by `violation` if that is why. How its link ended, if it was the last one of a link that is still
    /// the peer's greatest.
    pub(crate) fn close(
        &mut self,
        peer: &P,
        connection: C,
        hello: Hello,
        violation: Option<Violation>,
    ) -> Option<LinkEnd> {
        let link = self.peers.get_mut(peer)?;
        if link.number != hello.link || link.connection != connection {
            return None;
        }
        link.broken = link.broken.or(violation);
        let entry = link.channels.get_mut(usize::from(hello.channel.index))?.as_mut()?;
        let closed = std::mem::take(&mut entry.open);
        let end = link.broken.map_or(LinkEnd::Closed, LinkEnd::Violation);
        let last = closed && link.is_closed();
        self.forget_if_gone(peer);
        last.then_some(end)
    }

    /// The protocol was broken on `connection`, which is why a link on it will end.
    pub(crate) fn broken(&mut self, peer: &P, connection: C, violation: Violation) {
        if let Some(link) = self.peers.get_mut(peer).filter(|link| link.connection == connection) {
            link.broken = link.broken.or(Some(violation));
        }
    }

    /// What the substreams of the link of `peer` share, if it is on `connection`.
    pub(crate) fn shared_on(&self, peer: &P, connection: C) -> Option<S> {
        self.peers.get(peer).filter(|link| link.connection == connection).map(|link| link.shared.clone())
    }

    /// `peer` has a connection.
    pub(crate) fn connected(&mut self, peer: &P) {
        self.connected.insert(peer.clone());
    }

    /// `peer` has no connection any more.
    pub(crate) fn disconnected(&mut self, peer: &P) {
        self.connected.remove(peer);
        self.forget_if_gone(peer);
    }

    fn forget_if_gone(&mut self, peer: &P) {
        if self.connected.contains(peer) || self.peers.get(peer).is_none_or(|link| !link.is_closed()) {
            return;
        }
        self.lingering.insert(peer.clone());
        if self.peers.get(peer).is_some_and(Link::is_over) {
            self.lingering.remove(peer);
            self.peers.remove(peer);
        } else if self.lingering.len() >= self.sweep_at {
            self.sweep();
        }
    }

    /// Forgets who left nothing here. At twice as many as remain it is due again, so that it costs little on the whole.
    fn sweep(&mut self) {
        let (peers, connected) = (&mut self.peers, &self.connected);
        self.lingering.retain(|peer| {
            let gone = !connected.contains(peer) && peers.get(peer).is_none_or(Link::is_over);
            if gone {
                peers.remove(peer);
            }
            !gone && !connected.contains(peer)
        });
        self.sweep_at = SWEEP_AT.max(2 * self.lingering.len());
    }
}

impl<C, T, S> Link<C, T, S> {
    /// Whether no channel of it is open.
    fn is_closed(&self) -> bool {
        self.channels.iter().flatten().all(|entry| !entry.open)
    }
}

impl<C, T: Token, S> Link<C, T, S> {
    fn is_over(&self) -> bool {
        self.channels.iter().flatten().all(|entry| !entry.open && entry.token.is_over())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    type Small = Registry<u8, char, u32, u64>;

    /// Channels with an odd token leave frames behind.
    impl Token for u32 {
        fn is_over(&self) -> bool {
            self.is_multiple_of(2)
        }
    }

    impl Token for Rc<()> {
        fn is_over(&self) -> bool {
            Rc::strong_count(self) == 1
        }
    }

    fn hello(link: u64, index: u8, pool: u8) -> Hello {
        Hello { channel: Channel { index, pool }, link }
    }

    /// What the substreams of a link share is its number here.
    fn fresh<C>(shared: u64, first: bool) -> Result<Opened<C, u32, u64>, Unopened> {
        Ok(Opened { first, superseded: None, ended: vec![], shared, replaced: None })
    }

    #[test]
    fn l3_8_a_greater_number_ends_the_lanes_of_lower_ones_and_a_lower_one_is_refused() {
        let mut registry = Small::new();
        assert_eq!(registry.open(&1, 'a', hello(5, 0, 4), 50, || 5), fresh(5, true));
        assert_eq!(registry.open(&1, 'a', hello(5, 3, 4), 53, || 5), fresh(5, false));
        assert_eq!(
            registry.open(&1, 'b', hello(6, 1, 4), 61, || 6),
            Ok(Opened { first: true, superseded: Some('a'), ended: vec![50, 53], shared: 6, replaced: Some(5) })
        );
        assert_eq!(registry.open(&1, 'a', hello(5, 1, 4), 51, || 5), Err(Unopened::Superseded { greatest: 6 }));
        assert_eq!(registry.close(&1, 'a', hello(5, 0, 4), None), None, "its end changes nothing any more");
        assert_eq!(
            registry.open(&2, 'c', hello(1, 0, 4), 10, || 1),
            fresh(1, true),
            "other peers number for themselves"
        );
    }

    #[test]
    fn l3_8_a_channel_that_ended_is_replaced_by_its_successor_and_by_a_greater_link() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 0, 4), 50, || 5).unwrap();
        registry.open(&1, 'a', hello(5, 1, 4), 51, || 5).unwrap();
        assert_eq!(registry.close(&1, 'a', hello(5, 0, 4), None), None);
        assert_eq!(
            registry.open(&1, 'a', hello(5, 0, 4), 52, || 5),
            Ok(Opened { first: false, superseded: None, ended: vec![50], shared: 5, replaced: None }),
            "what the first left behind is not admitted after what the second brings"
        );
        assert_eq!(registry.close(&1, 'a', hello(5, 0, 4), None), None);
        assert_eq!(registry.close(&1, 'a', hello(5, 1, 4), None), Some(LinkEnd::Closed));
        assert_eq!(
            registry.open(&1, 'b', hello(6, 2, 3), 61, || 6),
            Ok(Opened { first: true, superseded: None, ended: vec![52, 51], shared: 6, replaced: Some(5) }),
            "nor what the whole link left, which was over before"
        );
    }

    #[test]
    fn l4_2_what_a_link_shares_is_found_by_its_own_connection_alone() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 0, 4), 50, || 5).unwrap();
        assert_eq!(registry.shared_on(&1, 'a'), Some(5));
        assert_eq!((registry.shared_on(&1, 'b'), registry.shared_on(&2, 'a')), (None, None));
        registry.open(&1, 'b', hello(6, 0, 4), 60, || 6).unwrap();
        assert_eq!((registry.shared_on(&1, 'a'), registry.shared_on(&1, 'b')), (None, Some(6)));
    }

    #[test]
    fn l3_8_one_number_is_one_connection() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 0, 4), 50, || 5).unwrap();
        assert_eq!(registry.open(&1, 'b', hello(5, 1, 4), 51, || 5), Err(Unopened::Superseded { greatest: 5 }));
    }

    #[test]
    fn l3_1_channels_past_the_pool_and_pools_past_four_do_not_exist() {
        let mut registry = Small::new();
        for (index, pool) in [(4, 4), (1, 1), (0, 0), (0, 5), (255, 255)] {
            assert_eq!(registry.open(&1, 'a', hello(5, index, pool), 0, || 5), Err(Unopened::UnknownChannel));
        }
        registry.open(&1, 'a', hello(5, 0, 2), 0, || 5).unwrap();
        assert_eq!(registry.open(&1, 'a', hello(5, 1, 3), 0, || 5), Err(Unopened::UnknownChannel), "the pool changed");
    }

    #[test]
    fn a_channel_opens_once_at_a_time_and_again_after_it_closed() {
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 2, 4), 2, || 5).unwrap();
        registry.open(&1, 'a', hello(5, 3, 4), 4, || 5).unwrap();
        assert_eq!(registry.open(&1, 'a', hello(5, 2, 4), 6, || 5), Err(Unopened::AlreadyOpen));
        registry.connected(&1);
        assert_eq!(registry.close(&1, 'a', hello(5, 2, 4), None), None);
        assert!(registry.open(&1, 'a', hello(5, 2, 4), 8, || 5).is_ok_and(|opened| !opened.first));
        assert_eq!(registry.close(&1, 'a', hello(5, 2, 4), None), None);
        assert_eq!(registry.close(&1, 'a', hello(5, 3, 4), None), Some(LinkEnd::Closed), "the last one ends the link");
        assert_eq!(registry.close(&1, 'a', hello(5, 3, 4), None), None, "once");
    }

    #[test]
    fn l13_3_a_link_ends_with_the_first_violation_on_any_of_its_channels() {
        let (one, other) = (Violation::EmptyFrame { channel: 2 }, Violation::TooManyChannels { bound: 8 });
        let mut registry = Small::new();
        registry.open(&1, 'a', hello(5, 2, 4), 2, || 5).unwrap();
        registry.open(&1, 'a', hello(5, 3, 4), 4, || 5).unwrap();
        assert_eq!(registry.close(&1, 'a', hello(5, 2, 4), Some(one)), None);
        registry.broken(&1, 'a', other);
        assert_eq!(registry.close(&1, 'a', hello(5, 3, 4), None), Some(LinkEnd::Violation(one)));
        // One that the swarm found on the connection.
        registry.open(&2, 'b', hello(5, 2, 4), 2, || 5).unwrap();
        registry.broken(&2, 'c', one);
        registry.broken(&2, 'b', other);
        assert_eq!(registry.close(&2, 'b', hello(5, 2, 4), None), Some(LinkEnd::Violation(other)));
    }

    #[test]
    fn l3_8_a_number_outlives_its_channels_and_goes_with_the_last_connection() {
        let mut registry = Small::new();
        registry.connected(&1);
        registry.open(&1, 'a', hello(6, 0, 4), 2, || 6).unwrap();
        registry.close(&1, 'a', hello(6, 0, 4), None);
        assert_eq!(registry.open(&1, 'a', hello(5, 0, 4), 4, || 5), Err(Unopened::Superseded { greatest: 6 }));
        registry.disconnected(&1);
        assert!(registry.peers.is_empty() && registry.lingering.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_a_peer_whose_channels_end_after_its_connections() {
        let mut registry = Small::new();
        registry.connected(&1);
        registry.open(&1, 'a', hello(6, 0, 4), 2, || 6).unwrap();
        registry.disconnected(&1);
        assert_eq!(registry.open(&1, 'b', hello(5, 0, 4), 4, || 5), Err(Unopened::Superseded { greatest: 6 }));
        assert_eq!(registry.close(&1, 'a', hello(6, 0, 4), None), Some(LinkEnd::Closed));
        assert!(registry.peers.is_empty() && registry.connected.is_empty() && registry.lingering.is_empty());
    }

    #[test]
    fn l3_8_a_number_outlives_its_last_connection_while_frames_are_left_and_those_are_replaced_by_the_next_link() {
        let mut registry = Small::new();
        registry.connected(&1);
        registry.open(&1, 'a', hello(6, 0, 4), 1, || 6).unwrap();
        registry.disconnected(&1);
        assert_eq!(registry.close(&1, 'a', hello(6, 0, 4), None), Some(LinkEnd::Closed));
        assert_eq!(
            registry.open(&1, 'b', hello(7, 0, 4), 2, || 7),
            Ok(Opened { first: true, superseded: None, ended: vec![1], shared: 7, replaced: Some(6) })
        );
    }

    #[test]
    fn who_left_nothing_is_forgotten_late_within_the_bound() {
        let mut registry: Registry<usize, char, Rc<()>, ()> = Registry::new();
        let mut held = std::collections::VecDeque::new();
        for peer in 0..1_000 {
            let token = Rc::new(());
            registry.open(&peer, 'a', hello(1, 0, 4), token.clone(), || ()).unwrap();
            registry.disconnected(&peer);
            registry.close(&peer, 'a', hello(1, 0, 4), None);
            // As its task does, a moment after the close; every hundredth leaves a frame for ever.
            if peer % 100 == 0 {
                held.push_back(token);
            }
            assert!(registry.peers.len() <= SWEEP_AT + held.len(), "{} at {peer}", registry.peers.len());
        }
        assert!((0..1_000).step_by(100).all(|peer| registry.peers.contains_key(&peer)));
    }

    #[test]
    fn l4_7_a_link_has_one_control_substream_after_its_first_channel() {
        let mut registry = Small::new();
        let control =
            |registry: &mut Small, connection, pool, link| registry.control(&1, connection, Hello::control(pool, link));
        registry.connected(&1);
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::UnknownChannel), "no channel yet");
        registry.open(&1, 'a', hello(5, 0, 4), 50, || 5).unwrap();
        assert_eq!(control(&mut registry, 'a', 4, 4), Err(Unopened::Superseded { greatest: 5 }));
        assert_eq!(control(&mut registry, 'b', 4, 5), Err(Unopened::Superseded { greatest: 5 }));
        assert_eq!(control(&mut registry, 'a', 4, 6), Err(Unopened::UnknownChannel), "it begins no link");
        assert_eq!(control(&mut registry, 'a', 3, 5), Err(Unopened::UnknownChannel), "the pool changed");
        assert_eq!(control(&mut registry, 'a', 4, 5), Ok(5));
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::AlreadyOpen));
        assert_eq!(
            registry.close(&1, 'a', hello(5, 0, 4), None),
            Some(LinkEnd::Closed),
            "it is no channel, and keeps no link open"
        );
        registry.open(&1, 'a', hello(5, 0, 4), 51, || 5).unwrap();
        assert_eq!(control(&mut registry, 'a', 4, 5), Err(Unopened::AlreadyOpen), "once a link");
        assert_eq!(registry.open(&1, 'b', hello(6, 0, 4), 60, || 6).unwrap().replaced, Some(5));
        assert_eq!(control(&mut registry, 'b', 4, 6), Ok(6));
    }
}
