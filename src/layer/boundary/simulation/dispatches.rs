//! What a destination dispatched, and what it may dispatch again.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Violation,
    receiver::{Effect, Instant},
};
use crate::{
    clock::WallMs,
    layer::{
        boundary::{Request, record::StreamRecord},
        local::{NAMESPACES_KEY, Namespace, Registry},
        window::{WindowRefusal, observe},
    },
    link::LinkId,
    message::TransactionDigest,
    storage::{
        Key, Table,
        commit::fault::Records,
        floor::{FLOOR_KEY, Floors},
    },
};

/// The namespaces of a world.
pub(super) fn namespace(number: usize) -> Namespace {
    Namespace::new([b'a' + number as u8]).unwrap()
}

#[derive(Debug, Clone, Copy)]
struct Dispatch {
    store: u64,
    /// When it was admitted.
    at: Instant,
    /// Which registration of its namespace promised to know it.
    promise: Option<(usize, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Dispatches {
    by_digest: HashMap<TransactionDigest, Vec<Dispatch>>,
    by_link: HashSet<(LinkId, TransactionDigest)>,
    /// Stores are numbered; a loss begins the next.
    store: u64,
    lost_at: u64,
    /// Of each namespace, how many registrations have ended durably, and its durable mark and standing.
    ended: [u64; 2],
    marks: [WallMs; 2],
    registered: [bool; 2],
    /// Requests that were dispatched lately, and what these were when the last store was lost.
    pub(super) recent: Vec<Request>,
    pub(super) before_loss: Vec<Request>,
    pub(super) total: u64,
    pub(super) link_local: u64,
    pub(super) promised: u64,
    pub(super) excused: u64,
    pub(super) lost: u64,
}

fn registry(records: &Records) -> Registry {
    let record = records.get(&(Table::Clock, Key::from_static(NAMESPACES_KEY)));
    record.and_then(|record| Registry::decode(record)).unwrap_or_default()
}

impl Dispatches {
    /// The namespaces that are registered durably.
    pub(super) fn registered(&self, records: &Records) -> BTreeSet<Namespace> {
        registry(records).names().copied().collect()
    }

    /// Looks whether registrations ended in what is durable now.
    pub(super) fn watch(&mut self, records: &Records) {
        let registry = registry(records);
        for number in 0..2 {
            let mark = registry.mark(Some(&namespace(number)));
            let registered = registry.names().any(|known| *known == namespace(number));
            if mark > self.marks[number] || (self.registered[number] && !registered) {
                self.ended[number] += 1;
            }
            (self.marks[number], self.registered[number]) = (mark, registered);
        }
    }

    pub(super) fn lose(&mut self, real: u64) {
        self.lost += 1;
        self.store += 1;
        self.lost_at = real;
        self.ended.iter_mut().for_each(|ended| *ended += 1);
        (self.marks, self.registered) = ([0; 2], [false; 2]);
        self.before_loss.clone_from(&self.recent);
    }

    /// Whether what is durable knows the request, so that no restart admits it again.
    pub(super) fn known(&self, records: &Records, request: &Request, effect: Effect) -> bool {
        if effect == Effect::LinkLocal {
            let namespace = request.application.and_then(|application| application.namespace);
            return namespace.is_some_and(|namespace| !registry(records).past_horizon(&namespace, request.issued_at));
        }
        let key = request.stream.to_bytes();
        let record = records.get(&(Table::Receiver, Key::copy_from_slice(&key)));
        if let Some((_, record)) = record.and_then(|record| StreamRecord::decode(&key, record).ok()) {
            let seen = observe(Some(&record.window), request.incarnation, request.sequence, request.digest);
            if matches!(seen, Err(WindowRefusal::Replay | WindowRefusal::Stale { .. })) {
                return true;
            }
        }
        // Its stream was removed since; another of the same key may stand there by now.
        let floor = records.get(&(Table::Clock, Key::from_static(FLOOR_KEY)));
        let floor = floor.and_then(|floor| Floors::decode(floor));
        floor.is_some_and(|floors| request.expires_at() <= floors.of(request.stream.class))
    }

    /// Notes a dispatch of what was admitted at `at`, where the tolerance is `sigma`.
    pub(super) fn dispatch(
        &mut self,
        request: &Request,
        effect: Effect,
        (at, sigma): (Instant, u64),
        place: usize,
    ) -> Result<(), Violation> {
        self.total += 1;
        let application = request.application;
        if let Some(link) = application.and_then(|application| application.own_link)
            && effect == Effect::LinkLocal
        {
            self.link_local += 1;
            if !self.by_link.insert((link, request.digest)) {
                return Err(Violation::TwiceOnOneLink);
            }
        }
        let number = application.and_then(|application| application.namespace);
        let number = number.and_then(|name| (0..2).find(|number| namespace(*number) == name));
        let promise = number.filter(|number| self.registered[*number]).map(|number| (number, self.ended[number]));
        let before = self.by_digest.entry(request.digest).or_default();
        for first in before.iter() {
            if promise.is_some() && first.promise == promise {
                self.promised += 1;
                continue;
            }
            if first.store == self.store {
                return Err(Violation::TwiceInOneStore);
            }
            let gap = (self.lost_at - first.at.real) as i64;
            if at.offset >= first.at.offset - sigma as i64 - gap {
                return Err(Violation::TwiceAcrossLoss);
            }
            self.excused += 1;
        }
        before.push(Dispatch { store: self.store, at, promise });
        // What was dispatched lately is presented most.
        match self.recent.get_mut(place) {
            Some(recent) => *recent = *request,
            None => self.recent.push(*request),
        }
        Ok(())
    }
}
