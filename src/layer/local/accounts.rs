//! What link-local streams have left of their quota, over all links (law L7).

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::{LINK_WINDOWS, LINKS_MAX};
use crate::{
    layer::quota::{Buckets, Moment},
    message::StreamKey,
};

/// The most accounts: one for each window that there may be, and as many of streams whose links are gone.
pub(super) const ACCOUNTS_MAX: usize = 2 * LINKS_MAX * LINK_WINDOWS;

/// How many accounts one look forgets at most.
const SWEPT: usize = 4;

#[derive(Debug)]
struct Account {
    /// `None` is full.
    buckets: Option<Buckets>,
    /// How many links have a window of the stream.
    links: usize,
    /// When the last of them was gone.
    released: Option<Moment>,
}

/// The accounts of all link-local streams. One whose links are gone is kept until its buckets are full again.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    accounts: HashMap<StreamKey, Account>,
    idle: BTreeSet<(Moment, StreamKey)>,
}

impl Accounts {
    pub(super) fn buckets(&self, stream: &StreamKey) -> Option<&Buckets> {
        self.accounts.get(stream)?.buckets.as_ref()
    }

    /// Whether `stream` has an account, or may have one.
    pub(super) fn room(&self, stream: &StreamKey) -> bool {
        self.accounts.len() < ACCOUNTS_MAX || self.accounts.contains_key(stream)
    }

    /// Notes what is left, and whether it is for a window that is new.
    pub(super) fn charge(&mut self, stream: StreamKey, buckets: Buckets, new: bool) {
        let account = self.accounts.entry(stream).or_insert(Account { buckets: None, links: 0, released: None });
        account.buckets = Some(buckets);
        account.links += usize::from(new);
        if let Some(released) = account.released.take() {
            self.idle.remove(&(released, stream));
        }
    }

    /// Takes back to what was left before.
    pub(super) fn restore(&mut self, stream: &StreamKey, buckets: Option<Buckets>) {
        if let Some(account) = self.accounts.get_mut(stream) {
            account.buckets = buckets;
        }
    }

    /// A window of `stream` is gone.
    pub(super) fn release(&mut self, stream: &StreamKey, now: Moment) {
        let Some(account) = self.accounts.get_mut(stream) else { return };
        account.links = account.links.saturating_sub(1);
        if account.links == 0 && account.released.is_none() {
            account.released = Some(now);
            self.idle.insert((now, *stream));
        }
    }

    /// Forgets at most [`SWEPT`] accounts that were released `fill` ago or longer.
    pub(super) fn sweep(&mut self, now: Moment, fill: Duration) {
        for _ in 0..SWEPT {
            let Some((released, stream)) = self.idle.first().copied() else { return };
            if now.since(released) < fill {
                return;
            }
            self.idle.remove(&(released, stream));
            self.accounts.remove(&stream);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.accounts.len()
    }
}
