//! The pure core of reassembly. See the [module above](super).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{
    ChunkRefusal, Failure, ReassemblyConfig,
    account::{Account, Accounts, Peer},
    message::{Chunk, Message, Name},
};
use crate::{
    clock::WallMs,
    message::{MESSAGE_LIMIT, slice_range},
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
    beginner: Peer,
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
        let mut message = match self.gathering.remove(&chunk.name) {
            Some(message) => message,
            None => self.begin(chunk, now)?,
        };
        if let Err(refusal) = self.admit(&mut message, chunk) {
            self.put_back(chunk, message, refusal);
            return Err(refusal);
        }
        if message.is_complete() {
            self.close(&message, (chunk.name, None), How::Finished);
            Ok(Taken::Complete(message))
        } else {
            self.gathering.insert(chunk.name, message);
            Ok(Taken::Stored)
        }
    }

    /// Says that a complete message is no longer held: its parts' bytes.
    pub(super) fn let_go(&mut self, parts: &BTreeMap<Peer, usize>) {
        for (peer, bytes) in parts {
            self.accounts.subtract(peer, Account { bytes: *bytes, ..Account::default() });
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
            if let Some(closed) = self.closed.remove(&(name, peer)) {
                self.accounts.subtract(&closed.beginner, Account { ids: 1, ..Account::default() });
            } else if peer.is_none()
                && let Some(message) = self.gathering.remove(&name)
            {
                self.release(name, &message);
                self.accounts.subtract(&message.beginner, Account { ids: 1, ..Account::default() });
                self.count(Failure::Expired);
            }
        }
        while let Some((began, name)) = self.ages.first().copied()
            && now.monotonic.saturating_sub(began) >= self.config.age
        {
            // Its entry goes with it.
            let Some(message) = self.gathering.remove(&name) else {
                self.ages.pop_first();
                continue;
            };
            self.fail(&message, (name, None), Failure::Age);
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

    /// A new message's place.
    fn begin(&mut self, chunk: &Chunk<'_>, now: Now) -> Result<Message, ChunkRefusal> {
        self.accounts.room_for_id(&chunk.peer, &self.config)?;
        let (link_bound, bound) = (self.config.link_messages, self.config.messages);
        let message = Message::begin(chunk, now.monotonic);
        self.accounts.add(chunk.peer, Account { messages: 1, ids: 1, bytes: 0 });
        self.ages.insert((message.began, chunk.name));
        let refusal = if self.accounts.of(&chunk.peer).messages > link_bound {
            ChunkRefusal::LinkMessages { bound: link_bound }
        } else if self.accounts.all().messages > bound {
            ChunkRefusal::AllMessages { bound }
        } else {
            self.expiries.insert((message.expires_at(), chunk.name, None));
            return Ok(message);
        };
        self.fail(&message, (chunk.name, Some(chunk.peer)), Failure::Room);
        Err(refusal)
    }

    /// Stores a chunk in its message if it fits there, and in the bounds.
    fn admit(&mut self, message: &mut Message, chunk: &Chunk<'_>) -> Result<(), ChunkRefusal> {
        match message.judge(chunk) {
            Err(refusal @ ChunkRefusal::Repeated { .. }) => {
                // From now on the message is not only the other link's to fail.
                let cost = message.cost_of_link(&chunk.peer);
                if cost > 0 && self.room(chunk, cost).is_ok() {
                    self.accounts.add(chunk.peer, Account { bytes: cost, ..Account::default() });
                    message.charge(chunk.peer, cost);
                }
                return Err(refusal);
            }
            judged => judged?,
        }
        let cost = message.cost(chunk);
        self.room(chunk, cost)?;
        self.accounts.add(chunk.peer, Account { bytes: cost, ..Account::default() });
        message.store(chunk, cost);
        Ok(())
    }

    /// After a refusal: a message that goes on does so, and one that fails is closed.
    fn put_back(&mut self, chunk: &Chunk<'_>, message: Message, refusal: ChunkRefusal) {
        match refusal {
            ChunkRefusal::Conflict { .. } => self.fail(&message, (chunk.name, None), Failure::Conflict),
            ChunkRefusal::LinkBytes { .. } | ChunkRefusal::AllBytes { .. } if message.is_of_only(&chunk.peer) => {
                self.fail(&message, (chunk.name, Some(chunk.peer)), Failure::Room);
            }
            _ => {
                self.gathering.insert(chunk.name, message);
            }
        }
    }

    /// Whether `cost` bytes more fit the bounds, after the largest message of a link that holds more made room.
    fn room(&mut self, chunk: &Chunk<'_>, cost: usize) -> Result<(), ChunkRefusal> {
        let held = self.accounts.of(&chunk.peer).bytes;
        if held.saturating_add(cost) > self.config.link_bytes {
            return Err(ChunkRefusal::LinkBytes { held, bound: self.config.link_bytes });
        }
        while self.accounts.all().bytes.saturating_add(cost) > self.config.bytes {
            let holds = |peer: &Peer| self.accounts.of(peer).bytes;
            let greatest = self
                .gathering
                .iter()
                .filter_map(|(name, message)| message.of_only().map(|(peer, bytes)| (holds(&peer), bytes, *name, peer)))
                .filter(|(of_link, .., peer)| *peer != chunk.peer && *of_link > held.saturating_add(cost))
                .max();
            let evicted = greatest.and_then(|(.., name, peer)| Some((name, peer, self.gathering.remove(&name)?)));
            let Some((name, peer, message)) = evicted else {
                return Err(ChunkRefusal::AllBytes { held: self.accounts.all().bytes, bound: self.config.bytes });
            };
            self.fail(&message, (name, Some(peer)), Failure::Room);
        }
        Ok(())
    }

    fn fail(&mut self, message: &Message, scope: Scope, failure: Failure) {
        self.close(message, scope, How::Failed(failure));
        self.let_go(message.parts());
        self.count(failure);
    }

    /// Makes a message that was taken out of `gathering` a tombstone, which keeps its id.
    fn close(&mut self, message: &Message, scope: Scope, how: How) {
        let (name, _) = scope;
        self.ages.remove(&(message.began, name));
        self.accounts.subtract(&message.beginner, Account { messages: 1, ..Account::default() });
        self.expiries.remove(&(message.expires_at(), name, None));
        self.expiries.insert((message.expires_at(), name, scope.1));
        self.closed.insert(scope, Closed { how, beginner: message.beginner });
    }

    /// Takes a message that leaves no tombstone out of all but its id.
    fn release(&mut self, name: Name, message: &Message) {
        self.ages.remove(&(message.began, name));
        self.accounts.subtract(&message.beginner, Account { messages: 1, ..Account::default() });
        self.let_go(message.parts());
    }

    fn count(&mut self, failure: Failure) {
        *self.failures.entry(failure.label()).or_default() += 1;
    }

    #[cfg(test)]
    pub(super) const fn accounts(&self) -> &Accounts {
        &self.accounts
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
