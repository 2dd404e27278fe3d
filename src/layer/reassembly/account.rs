use std::collections::HashMap;

use super::{ChunkRefusal, ReassemblyConfig};

/// Whom what is held is accounted to: the key that a connection authenticated.
pub(super) type Peer = [u8; 32];

/// What one peer makes this node hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) bytes: usize,
    /// Messages that gather and that it brought a chunk of.
    pub(super) messages: usize,
    /// These, and the tombstones that are accounted to it.
    pub(super) ids: usize,
}

/// What is held for each peer, and for all. A peer for which nothing is held has no entry.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    peers: HashMap<Peer, Account>,
    all: Account,
}

impl Accounts {
    pub(super) fn of(&self, peer: &Peer) -> Account {
        self.peers.get(peer).copied().unwrap_or_default()
    }

    pub(super) const fn all(&self) -> Account {
        self.all
    }

    pub(super) fn add(&mut self, peer: Peer, what: Account) {
        for account in [self.peers.entry(peer).or_default(), &mut self.all] {
            account.bytes += what.bytes;
            account.messages += what.messages;
            account.ids += what.ids;
        }
    }

    pub(super) fn subtract(&mut self, peer: &Peer, what: Account) {
        let Some(of_peer) = self.peers.get_mut(peer) else { return };
        for account in [&mut *of_peer, &mut self.all] {
            account.bytes = account.bytes.saturating_sub(what.bytes);
            account.messages = account.messages.saturating_sub(what.messages);
            account.ids = account.ids.saturating_sub(what.ids);
        }
        if *of_peer == Account::default() {
            self.peers.remove(peer);
        }
    }

    /// Whether `peer` may begin one more message, and all together.
    pub(super) fn room_for_message(&self, peer: &Peer, config: &ReassemblyConfig) -> Result<(), ChunkRefusal> {
        if self.of(peer).messages >= config.link_messages {
            Err(ChunkRefusal::LinkMessages { bound: config.link_messages })
        } else if self.all.messages >= config.messages {
            Err(ChunkRefusal::AllMessages { bound: config.messages })
        } else {
            Ok(())
        }
    }

    pub(super) fn peers(&self) -> &HashMap<Peer, Account> {
        &self.peers
    }
}
