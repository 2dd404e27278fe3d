//! The pure core of reassembly. See the [module above](super).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{
    ChunkRefusal, Failure, ReassemblyConfig,
    account::{Account, Accounts, Peer},
    message::{Chunk, Message, Name, cost},
};
use crate::{
    clock::WallMs,
    message::{MESSAGE_LIMIT, TransactionDigest, slice_range},
};

/// One reading of the clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) wall: WallMs,
    pub(super) monotonic: Duration,
}

/// What became of a chunk that was not refused.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is stored, and others are missing.
    Stored,
    /// It was the last one missing. The message's bytes stay accounted until [`Gathered::let_go`].
    Complete(Message),
}

/// A message that failed, or did not, for a peer or for all.
type Scope = (Name, Option<Peer>);

/// A tombstone.
#[derive(Debug, Clone, Copy)]
struct Closed {
    how: How,
    /// Whose id it takes.
    peer: Peer,
    expires_at: WallMs,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Finished,
    Failed(Failure),
}

/// All messages in chunks of a node.
#[derive(Debug)]
pub(super) struct Gathered {
    config: ReassemblyConfig,
    gathering: HashMap<Name, Message>,
    closed: HashMap<Scope, Closed>,
    /// The same by link, and by expiry within each.
    closed_of: BTreeSet<(Peer, WallMs, Scope)>,
    /// When each of both expires.
    expiries: BTreeSet<(WallMs, Name, Option<Peer>)>,
    /// Since when each message gathers.
    ages: BTreeSet<(Duration, Name)>,
    accounts: Accounts,
    failures: BTreeMap<&'static str, u64>,
}

impl Gathered {
    pub(super) fn new(config: ReassemblyConfig) -> Self {
        Self {
            config,
            gathering: HashMap::new(),
            closed: HashMap::new(),
            closed_of: BTreeSet::new(),
            expiries: BTreeSet::new(),
            ages: BTreeSet::new(),
            accounts: Accounts::default(),
            failures: BTreeMap::new(),
        }
    }

    /// What is held in all.
    pub(super) const fn held(&self) -> Account {
        self.accounts.all()
    }

    /// The failures since the last call, by reason.
    pub(super) fn take_failures(&mut self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.failures)
    }

    /// Takes one chunk over, or refuses it.
    pub(super) fn take(&mut self, chunk: &Chunk<'_>, now: Now) -> Result<Taken, ChunkRefusal> {
        self.purge(now);
        shape(chunk)?;
        let expires_at = chunk.common.expires_at();
        if now.wall >= expires_at {
            return Err(ChunkRefusal::Expired { expires_at });
        }
        for scope in [(chunk.name, None), (chunk.name, Some(chunk.peer))] {
            match self.closed.get(&scope).map(|closed| closed.how) {
                Some(How::Finished) => return Err(ChunkRefusal::Finished),
                Some(How::Failed(failure)) => return Err(ChunkRefusal::Failed(failure)),
                None => {}
            }
        }
        if let Some(message) = self.gathering.get(&chunk.name)
            && let Err(refusal) = message.judge(chunk)
        {
            if let ChunkRefusal::Conflict { .. } = refusal {
                self.fail(chunk.name, Failure::Conflict);
            }
            return Err(refusal);
        }
        self.reserve(chunk)?;
        let message = self.gathering.entry(chunk.name).or_insert_with(|| {
            let message = Message::begin(chunk, now.monotonic);
            self.ages.insert((message.began, chunk.name));
            self.expiries.insert((message.expires_at(), chunk.name, None));
            message
        });
        message.store(chunk, cost(chunk, !message.is_brought_by(&chunk.peer)));
        if !message.is_complete() {
            return Ok(Taken::Stored);
        }
        Ok(self.close(chunk.name, How::Finished).map_or(Taken::Stored, Taken::Complete))
    }

    /// Says that a complete message with these parts is no longer held.
    pub(super) fn let_go(&mut self, parts: impl IntoIterator<Item = (Peer, usize)>) {
        for (peer, bytes) in parts {
            self.accounts.subtract(&peer, Account { bytes, ..Account::default() });
        }
    }

    /// Says that a complete message was no original.
    pub(super) fn spoil(&mut self, name: Name) {
        if let Some(closed) = self.closed.get_mut(&(name, None)) {
            closed.how = How::Failed(Failure::Original);
            self.count(Failure::Original);
        }
    }

    /// Lets go what has expired or is too old.
    pub(super) fn purge(&mut self, now: Now) {
        while let Some((expires_at, name, peer)) = self.expiries.first().copied()
            && expires_at <= now.wall
        {
            self.expiries.pop_first();
            if !self.forget((name, peer))
                && peer.is_none()
                && let Some(message) = self.gathering.remove(&name)
            {
                self.ages.remove(&(message.began, name));
                for (peer, bytes) in message.parts() {
                    self.accounts.subtract(&peer, Account { bytes, messages: 1, ids: 1 });
                }
                self.count(Failure::Expired);
            }
        }
        while let Some((began, name)) = self.ages.first().copied()
            && now.monotonic.saturating_sub(began) >= self.config.age
        {
            self.ages.pop_first();
            self.fail(name, Failure::Age);
        }
    }

    /// How long until something is due, by whichever clock comes first. `None` while nothing is held.
    pub(super) fn due_in(&self, now: Now) -> Option<Duration> {
        let expiry = self.expiries.first().map(|(at, ..)| Duration::from_millis(at.saturating_sub(now.wall)));
        let age = self.ages.first().map(|(began, _)| {
            let age = now.monotonic.saturating_sub(*began);
            self.config.age.saturating_sub(age)
        });
        [expiry, age].into_iter().flatten().min()
    }

    /// Accounts a chunk that is about to be stored to its link. Over a bound, the message has failed for that link.
    fn reserve(&mut self, chunk: &Chunk<'_>) -> Result<(), ChunkRefusal> {
        let peer = &chunk.peer;
        let first = self.gathering.get(&chunk.name).is_none_or(|message| !message.is_brought_by(peer));
        if first {
            self.make_room_for_id(peer)?;
        }
        let bytes = cost(chunk, first);
        let room = if first { self.accounts.room_for_message(peer, &self.config) } else { Ok(()) };
        if let Err(refusal) = room.and_then(|()| self.make_room(peer, bytes)) {
            if first {
                self.accounts.add(*peer, Account { ids: 1, ..Account::default() });
                self.close_for(*peer, chunk.name, chunk.common.expires_at());
            } else {
                self.fail_for(*peer, chunk.name);
            }
            return Err(refusal);
        }
        let one = usize::from(first);
        self.accounts.add(*peer, Account { bytes, messages: one, ids: one });
        Ok(())
    }

    /// Whether `newcomer` may have one more message remembered. Where all places are taken, the link that takes most of
    /// them, if more than the newcomer would, forgets the one of its tombstones that expires first.
    fn make_room_for_id(&mut self, newcomer: &Peer) -> Result<(), ChunkRefusal> {
        let ids = self.accounts.of(newcomer).ids;
        if ids >= self.config.link_ids {
            return Err(ChunkRefusal::LinkIds { bound: self.config.link_ids });
        }
        if self.accounts.all().ids < self.config.ids {
            return Ok(());
        }
        let greater = self.accounts.peers().iter().filter(|(_, of)| of.ids > ids + 1);
        let closed = greater.filter_map(|(peer, of)| Some((of.ids, *peer, self.first_closed(peer)?)));
        let Some((.., (expires_at, (name, scope)))) = closed.max_by_key(|(ids, peer, _)| (*ids, *peer)) else {
            return Err(ChunkRefusal::AllIds { bound: self.config.ids });
        };
        self.expiries.remove(&(expires_at, name, scope));
        self.forget((name, scope));
        Ok(())
    }

    /// The tombstone of a link that expires first.
    fn first_closed(&self, peer: &Peer) -> Option<(WallMs, Scope)> {
        let first = Name { origin: [0; 32], original: TransactionDigest([0; 32]) };
        let from = self.closed_of.range((*peer, 0, (first, None))..).next();
        from.filter(|(of, ..)| of == peer).map(|(_, expires_at, scope)| (*expires_at, *scope))
    }

    /// Whether `cost` bytes more of `newcomer` fit the bounds, after a link that holds more made room.
    fn make_room(&mut self, newcomer: &Peer, cost: usize) -> Result<(), ChunkRefusal> {
        let held = self.accounts.of(newcomer).bytes;
        let wanted = held.saturating_add(cost);
        if wanted > self.config.link_bytes {
            return Err(ChunkRefusal::LinkBytes { held, bound: self.config.link_bytes });
        }
        while self.accounts.all().bytes.saturating_add(cost) > self.config.bytes {
            let parts = self.gathering.iter().flat_map(|(name, message)| {
                message.parts().map(|(peer, bytes)| (self.accounts.of(&peer).bytes, bytes, *name, peer))
            });
            let greatest = parts.filter(|(of_link, .., peer)| peer != newcomer && *of_link > wanted).max();
            let Some((.., name, peer)) = greatest else {
                return Err(ChunkRefusal::AllBytes { held: self.accounts.all().bytes, bound: self.config.bytes });
            };
            self.fail_for(peer, name);
        }
        Ok(())
    }

    /// A message fails for one link, for want of room: what only that link brought goes.
    fn fail_for(&mut self, peer: Peer, name: Name) {
        let Some(message) = self.gathering.get_mut(&name) else { return };
        let bytes = message.leave(&peer);
        let (began, expires_at) = (message.began, message.expires_at());
        if message.parts().next().is_none() {
            self.gathering.remove(&name);
            self.ages.remove(&(began, name));
            self.expiries.remove(&(expires_at, name, None));
        }
        // Its id is the tombstone's from now on.
        self.accounts.subtract(&peer, Account { bytes, messages: 1, ids: 0 });
        self.close_for(peer, name, expires_at);
    }

    fn close_for(&mut self, peer: Peer, name: Name, expires_at: WallMs) {
        self.expiries.insert((expires_at, name, Some(peer)));
        self.remember((name, Some(peer)), Closed { how: How::Failed(Failure::Room), peer, expires_at });
        self.count(Failure::Room);
    }

    /// A message fails for all.
    fn fail(&mut self, name: Name, failure: Failure) {
        if let Some(message) = self.close(name, How::Failed(failure)) {
            self.let_go(message.parts());
            self.count(failure);
        }
    }

    /// Makes a message a tombstone, which takes the id of one of its links. Its bytes stay accounted.
    fn close(&mut self, name: Name, how: How) -> Option<Message> {
        let message = self.gathering.remove(&name)?;
        self.ages.remove(&(message.began, name));
        for (place, (peer, _)) in message.parts().enumerate() {
            self.accounts.subtract(&peer, Account { bytes: 0, messages: 1, ids: usize::from(place > 0) });
            if place == 0 {
                self.remember((name, None), Closed { how, peer, expires_at: message.expires_at() });
            }
        }
        Some(message)
    }

    /// Keeps a tombstone, whose id is accounted.
    fn remember(&mut self, scope: Scope, closed: Closed) {
        self.closed_of.insert((closed.peer, closed.expires_at, scope));
        self.closed.insert(scope, closed);
    }

    /// Whether there was such a tombstone. Its entry among the expiries is the caller's.
    fn forget(&mut self, scope: Scope) -> bool {
        let Some(Closed { peer, expires_at, .. }) = self.closed.remove(&scope) else { return false };
        self.closed_of.remove(&(peer, expires_at, scope));
        self.accounts.subtract(&peer, Account { ids: 1, ..Account::default() });
        true
    }

    fn count(&mut self, failure: Failure) {
        *self.failures.entry(failure.label()).or_default() += 1;
    }

    /// Adds up everything anew: nothing is past its time, each account is what is there, and no bound is passed.
    /// `in_hand` are the parts of complete messages that are not let go.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self, now: Now, in_hand: &[Vec<(Peer, usize)>]) {
        let mut peers: HashMap<Peer, Account> = HashMap::new();
        let mut keys = BTreeSet::new();
        for (name, message) in &self.gathering {
            assert!(message.expires_at() > now.wall && now.monotonic.saturating_sub(message.began) < self.config.age);
            assert!(self.ages.contains(&(message.began, *name)));
            assert!(!message.is_complete() && !self.closed.contains_key(&(*name, None)));
            let accounted: usize = message.parts().map(|(_, bytes)| bytes).sum();
            assert!(accounted > message.really_held(), "no more is held than accounted");
            keys.insert((message.expires_at(), *name, None));
            for (peer, bytes) in message.parts() {
                let of = peers.entry(peer).or_default();
                *of = Account { bytes: of.bytes + bytes, messages: of.messages + 1, ids: of.ids + 1 };
                assert!(!self.closed.contains_key(&(*name, Some(peer))), "it failed for this link");
            }
        }
        for (peer, bytes) in in_hand.iter().flatten() {
            peers.entry(*peer).or_default().bytes += bytes;
        }
        for ((name, peer), closed) in &self.closed {
            peers.entry(closed.peer).or_default().ids += 1;
            assert!(self.closed_of.contains(&(closed.peer, closed.expires_at, (*name, *peer))));
            let key = self.expiries.iter().find(|(_, of, scope)| (of, scope) == (name, peer));
            assert!(key.is_some_and(|(at, ..)| *at > now.wall));
            keys.extend(key);
        }
        assert_eq!((keys.len(), self.ages.len()), (self.expiries.len(), self.gathering.len()));
        assert_eq!(self.closed_of.len(), self.closed.len());
        assert_eq!(&peers, self.accounts.peers());
        let all = peers.values().fold(Account::default(), |all, of| Account {
            bytes: all.bytes + of.bytes,
            messages: all.messages + of.messages,
            ids: all.ids + of.ids,
        });
        assert_eq!(all, self.accounts.all());
        assert!(all.bytes <= self.config.bytes && all.messages <= self.config.messages && all.ids <= self.config.ids);
        for of in peers.values() {
            assert!(of.bytes <= self.config.link_bytes);
            assert!(of.messages <= self.config.link_messages && of.ids <= self.config.link_ids);
        }
    }

    #[cfg(test)]
    pub(super) const fn let_all(&mut self, config: ReassemblyConfig) {
        self.config = config;
    }

    #[cfg(test)]
    pub(super) fn account(&self, peer: &Peer) -> Account {
        self.accounts.of(peer)
    }
}

/// Whether a chunk's numbers agree with each other and with its slice.
fn shape(chunk: &Chunk<'_>) -> Result<(), ChunkRefusal> {
    let (index, count, length, slice) = (chunk.index, chunk.common.count, chunk.common.length, chunk.slice.len());
    if index >= count {
        return Err(ChunkRefusal::NoSuchChunk { index, count });
    }
    if usize::try_from(length).is_ok_and(|length| length <= MESSAGE_LIMIT) {
        match slice_range(index, count, length) {
            Some(range) if range.len() == slice => Ok(()),
            _ => Err(ChunkRefusal::WrongSize { index, count, length, slice }),
        }
    } else {
        Err(ChunkRefusal::MessageTooLarge { length, limit: MESSAGE_LIMIT })
    }
}
