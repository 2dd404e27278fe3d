//! An honest origin: it signs over what its leases cover, and nothing else.

use std::{cell::Cell, collections::HashSet, sync::Arc};

use futures::FutureExt;

use super::{Habit, Violation, Without, disk::Disk};
use crate::{
    clock::{Clock, ManualClock},
    layer::boundary::model::Draw,
    message::StreamKey,
    storage::{
        Table,
        commit::{CommitConfig, GroupCommit, StoreState, Ticket, fault::Fault},
        lease::{LeaseConfig, LeaseRefused, Leases, Reservation},
    },
};

thread_local! {
    static BITS: Cell<u16> = const { Cell::new(0) };
}

/// Stands in for random bits: no draw of a world repeats another's, which real ones promise up to one in 65,536.
fn fresh_bits() -> Option<u16> {
    BITS.with(|bits| bits.set(bits.get().wrapping_add(1)));
    Some(BITS.with(Cell::get))
}

/// What is to be signed once its sequence is covered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draft {
    pub(super) stream: StreamKey,
    pub(super) issued_at: u64,
    pub(super) ttl: u64,
    pub(super) bytes: u64,
}

struct Process {
    commit: GroupCommit,
    leases: Leases,
    waiting: Vec<(Draft, Ticket<Result<Reservation, LeaseRefused>>)>,
}

pub(super) struct Sender {
    pub(super) clock: Arc<ManualClock>,
    /// Whether a store of it was ever lost, so that it may have begun again behind itself.
    pub(super) lost: bool,
    config: LeaseConfig,
    disk: Disk,
    process: Option<Process>,
    exposed: HashSet<(StreamKey, Reservation)>,
}

impl Sender {
    /// An origin whose first process starts with the first step that it takes.
    pub(super) fn new(wall: u64, config: LeaseConfig) -> Self {
        BITS.set(0);
        Self {
            clock: Arc::new(ManualClock::new(wall)),
            lost: false,
            config,
            disk: Disk::new(),
            process: None,
            exposed: HashSet::new(),
        }
    }

    async fn running(&mut self) -> &mut Process {
        if self.process.is_none() {
            let commit = GroupCommit::open(self.disk.store.arc(), CommitConfig::new()).await.unwrap();
            let leases = Leases::open_with(&commit, self.clock.clone(), self.config, fresh_bits).unwrap();
            self.disk.started();
            self.process = Some(Process { commit, leases, waiting: Vec::new() });
        }
        self.process.as_mut().unwrap()
    }

    pub(super) async fn reserve(&mut self, draft: Draft) -> Result<(), Violation> {
        let process = self.running().await;
        process.waiting.push((draft, process.leases.reserve(&draft.stream, draft.ttl)));
        let over = process.leases.streams() > self.config.streams;
        if over { Err(Violation::OverBound) } else { Ok(()) }
    }

    /// What may be signed now.
    pub(super) fn collect(&mut self) -> Result<Vec<(Draft, Reservation)>, Violation> {
        let mut signed = Vec::new();
        let Some(process) = &mut self.process else { return Ok(signed) };
        for (draft, mut ticket) in std::mem::take(&mut process.waiting) {
            match (&mut ticket).now_or_never() {
                None => process.waiting.push((draft, ticket)),
                Some(Ok(Ok(reservation))) if !self.exposed.insert((draft.stream, reservation)) => {
                    return Err(Violation::SequenceReused);
                }
                Some(Ok(Ok(reservation))) => signed.push((draft, reservation)),
                Some(Ok(Err(_)) | Err(_)) => {}
            }
        }
        Ok(signed)
    }

    pub(super) async fn land(&mut self) {
        let process = self.running().await;
        if matches!(process.commit.health().state, StoreState::Closed(_)) {
            process.commit.reopen().await.unwrap();
        }
        self.disk.land().await;
    }

    pub(super) async fn fail(&mut self, fault: Fault) {
        self.disk.fail(fault).await;
    }

    pub(super) async fn crash(&mut self, draw: &mut Draw, without: Without) {
        self.disk.crash(draw, without.keeps(Habit::HonestSendersDisk)).await;
        self.process = None;
    }

    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.disk.lose();
    }

    pub(super) fn damage(&mut self, draw: &mut Draw) {
        let table = if draw.one_in(8) { Table::Clock } else { Table::Sender };
        self.disk.damage(table, draw);
    }

    /// Everything is repaired, and it signs one more.
    pub(super) async fn at_last(&mut self, draft: Draft) -> Result<Result<Reservation, LeaseRefused>, Violation> {
        self.land().await;
        self.disk.store.resume();
        let reserved = self.running().await.leases.reserve(&draft.stream, draft.ttl).await;
        // A batch that failed before it was repaired may take this one along.
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(_) => return Err(Violation::NotHeard),
        };
        match reserved {
            Ok(reservation) if !self.exposed.insert((draft.stream, reservation)) => Err(Violation::SequenceReused),
            reserved => Ok(reserved),
        }
    }

    pub(super) fn wall(&self) -> u64 {
        self.clock.wall()
    }
}
