//! Group commit against an engine that fails on demand. Each test runs on one thread, so that `settle` is exact.

mod failure;
mod laws;
mod lifetime;
mod model;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    BatchNumber, BudgetExhausted, CommitConfig, GroupCommit, Member, Participant, Stage, Ticket,
    fault::{FaultStore, Records},
};
use crate::storage::{Key, Table};

/// A table of counters that knows how to undo.
#[derive(Default)]
struct Counters {
    values: BTreeMap<u8, u64>,
    log: Vec<(BatchNumber, u8, Option<u64>)>,
    undone: u64,
}

impl Counters {
    fn add(&mut self, key: u8, stage: &mut Stage<'_>) -> Result<u64, BudgetExhausted> {
        let before = self.values.get(&key).copied();
        let value = before.unwrap_or(0) + 1;
        stage.put(Table::Receiver, name(key), Bytes::copy_from_slice(&value.to_be_bytes()))?;
        self.values.insert(key, value);
        self.log.push((stage.batch(), key, before));
        Ok(value)
    }

    fn remove(&mut self, key: u8, stage: &mut Stage<'_>) {
        stage.remove(Table::Receiver, name(key));
        let before = self.values.remove(&key);
        self.log.push((stage.batch(), key, before));
    }
}

impl Participant for Counters {
    fn released(&mut self, batch: BatchNumber) {
        self.log.retain(|(staged, ..)| *staged > batch);
    }

    fn undo(&mut self) {
        self.undone += 1;
        while let Some((_, key, before)) = self.log.pop() {
            match before {
                Some(value) => self.values.insert(key, value),
                None => self.values.remove(&key),
            };
        }
    }
}

fn name(key: u8) -> Key {
    Bytes::copy_from_slice(&[key])
}

/// The counters that a restart would find.
fn durable(records: &Records) -> BTreeMap<u8, u64> {
    let counters = records.iter().filter(|((table, _), _)| *table == Table::Receiver);
    counters.map(|((_, key), value)| (key[0], u64::from_be_bytes(value[..].try_into().unwrap()))).collect()
}

async fn open(store: &FaultStore) -> (GroupCommit, Member<Counters>) {
    let commit = GroupCommit::open(store.arc(), CommitConfig::new()).await.unwrap();
    let values = durable(&store.records());
    let member = commit.join(Counters { values, ..Counters::default() });
    (commit, member)
}

fn add(member: &Member<Counters>, key: u8) -> Ticket<u64> {
    member.transition(|counters, stage| counters.add(key, stage).unwrap())
}

/// A transition that stages nothing, as a refusal does.
fn look(member: &Member<Counters>, key: u8) -> Ticket<Option<u64>> {
    member.transition(|counters, _| counters.values.get(&key).copied())
}

fn values(member: &Member<Counters>) -> BTreeMap<u8, u64> {
    member.inspect(|counters| counters.values.clone())
}

/// Lets every task run until none can: on the one thread of a test, the writer needs a few turns for a batch.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}
