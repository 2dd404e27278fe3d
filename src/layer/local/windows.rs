//! The volatile windows of links (law L6.2).

use std::{collections::HashMap, time::Duration};

use super::{LINK_WINDOWS, LINKS_MAX, accounts::Accounts};
use crate::{
    layer::{
        quota::{Buckets, Moment},
        window::Window,
    },
    link::LinkId,
    message::StreamKey,
    storage::commit::BatchNumber,
};

/// One stream's window on one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::layer) struct Volatile {
    /// What it admitted.
    pub(in crate::layer) window: Window,
    /// The newest batch that can undo it; 0 for none.
    pub(in crate::layer) touched: BatchNumber,
}

/// Which place a stream finds on a link.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::layer) enum Room<'a> {
    /// It has a window there.
    Window(&'a Volatile),
    /// It may have one.
    Free,
    /// It may not, and uses its durable window.
    None,
}

/// The volatile windows of all links that are open, and what their streams have left of their quota.
///
/// A link has an entry from when it is announced until it is retired; at most [`LINKS_MAX`] have one, each of at most
/// [`LINK_WINDOWS`] windows.
#[derive(Debug, Default)]
pub(in crate::layer) struct Windows {
    links: HashMap<LinkId, Vec<(StreamKey, Volatile)>>,
    accounts: Accounts,
}

impl Windows {
    /// A link is open: its streams may have windows. Past the bound it is not, and they are durable.
    pub(in crate::layer) fn open(&mut self, link: LinkId) {
        if self.links.len() < LINKS_MAX {
            self.links.entry(link).or_default();
        }
    }

    /// A link is retired, and its windows are gone.
    pub(in crate::layer) fn retire(&mut self, link: &LinkId, now: Moment) {
        for (stream, _) in self.links.remove(link).into_iter().flatten() {
            self.accounts.release(&stream, now);
        }
    }

    /// Forgets some accounts of streams without a window that are full again: each was released `fill` ago or longer.
    pub(in crate::layer) fn sweep(&mut self, now: Moment, fill: Duration) {
        self.accounts.sweep(now, fill);
    }

    /// What place `stream` finds on `link`. Where there is a quota it needs an account, too.
    pub(in crate::layer) fn room(&self, link: &LinkId, stream: &StreamKey, quota: bool) -> Room<'_> {
        let Some(windows) = self.links.get(link) else { return Room::None };
        match windows.iter().find(|(key, _)| key == stream) {
            Some((_, volatile)) => Room::Window(volatile),
            None if windows.len() < LINK_WINDOWS && (!quota || self.accounts.room(stream)) => Room::Free,
            None => Room::None,
        }
    }

    /// What `stream` has left of its quota over all links; full where there is nothing.
    pub(in crate::layer) fn buckets(&self, stream: &StreamKey) -> Option<&Buckets> {
        self.accounts.buckets(stream)
    }

    /// Puts a window, and what is left of its stream's quota, where the link is open.
    pub(in crate::layer) fn put(
        &mut self,
        link: &LinkId,
        stream: StreamKey,
        volatile: Volatile,
        buckets: Option<Buckets>,
    ) {
        let Some(windows) = self.links.get_mut(link) else { return };
        let known = windows.iter_mut().find(|(key, _)| *key == stream);
        if let Some(buckets) = buckets {
            self.accounts.charge(stream, buckets, known.is_none());
        }
        match known {
            Some((_, kept)) => *kept = volatile,
            None => windows.push((stream, volatile)),
        }
    }

    /// Takes back to what was before: a window or none, and what was left of the quota then.
    pub(in crate::layer) fn restore(
        &mut self,
        link: &LinkId,
        stream: StreamKey,
        before: Option<Volatile>,
        buckets: Option<Buckets>,
        now: Moment,
    ) {
        self.accounts.restore(&stream, buckets);
        let Some(windows) = self.links.get_mut(link) else { return };
        let Some(place) = windows.iter().position(|(key, _)| *key == stream) else { return };
        match before {
            Some(before) => {
                if let Some((_, kept)) = windows.get_mut(place) {
                    *kept = before;
                }
            }
            None => {
                windows.swap_remove(place);
                self.accounts.release(&stream, now);
            }
        }
    }

    /// How many links are open, and how many windows they have.
    pub(in crate::layer) fn held(&self) -> (usize, usize) {
        (self.links.len(), self.links.values().map(Vec::len).sum())
    }

    /// How many accounts are kept.
    #[cfg(test)]
    pub(in crate::layer) fn accounts(&self) -> usize {
        self.accounts.len()
    }
}
