//! Release, order, latency, cancellation, budgets (laws L9.2, L9.3, L9.7).

use futures::{FutureExt, future::join_all, poll};

use super::*;
use crate::storage::commit::{Budget, Limit};

#[tokio::test]
async fn l9_2_release_no_result_before_its_batch_is_durable() {
    let store = FaultStore::new();
    let (_commit, member) = open(&store).await;
    store.stall();
    let mut ticket = add(&member, 1);
    settle().await;
    assert!(poll!(&mut ticket).is_pending());
    assert!(store.records().is_empty());
    store.let_through(1);
    assert_eq!(ticket.await.unwrap(), 1);
    assert_eq!(durable(&store.records()), [(1, 1)].into());
}

#[tokio::test]
async fn l9_2_release_what_stages_nothing_waits_for_the_newest_unreleased_batch_or_not_at_all() {
    let store = FaultStore::new();
    let (_commit, member) = open(&store).await;
    assert_eq!(look(&member, 1).now_or_never().unwrap().unwrap(), None, "nothing is unreleased");
    store.stall();
    let first = add(&member, 1);
    settle().await;
    let mut behind_first = look(&member, 1);
    let second = add(&member, 2);
    let mut behind_second = look(&member, 2);
    settle().await;
    assert!(poll!(&mut behind_first).is_pending());
    store.let_through(1);
    assert_eq!(first.await.unwrap(), 1);
    assert_eq!(behind_first.await.unwrap(), Some(1));
    settle().await;
    assert!(poll!(&mut behind_second).is_pending(), "it saw what is not durable");
    store.let_through(1);
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(behind_second.await.unwrap(), Some(1));
    assert_eq!(look(&member, 2).now_or_never().unwrap().unwrap(), Some(1));
    assert_eq!(store.begun(), 2, "looking writes nothing");
}

#[tokio::test]
async fn l9_2_order_durable_values_follow_the_lock_and_a_batch_writes_a_record_once() {
    let store = FaultStore::new();
    let (_commit, member) = open(&store).await;
    store.stall();
    let mut tickets = Vec::new();
    for step in 0..500_u32 {
        tickets.push(add(&member, (step % 7) as u8));
        if step % 3 == 0 {
            store.let_through(1);
            settle().await;
        }
    }
    store.resume();
    let results = join_all(tickets).await;
    assert!(results.into_iter().enumerate().all(|(step, result)| result.unwrap() == step as u64 / 7 + 1));
    let mut last = BTreeMap::new();
    for batch in store.landed() {
        let mut names = Vec::new();
        for write in batch.writes {
            let value = u64::from_be_bytes(write.value.unwrap()[..].try_into().unwrap());
            assert!(last.insert(write.key.clone(), value).is_none_or(|before| before < value));
            names.push(write.key);
        }
        let writes = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), writes, "a record once");
    }
    assert_eq!(durable(&store.records()), values(&member));
}

#[tokio::test]
async fn l9_2_latency_a_transition_waits_for_two_batch_writes_at_most() {
    let store = FaultStore::new();
    let (_commit, member) = open(&store).await;
    store.stall();
    let mut waiting: Vec<(usize, Ticket<u64>)> = Vec::new();
    let mut most = 0;
    for step in 0..400_u32 {
        for key in 0..(step % 5) as u8 {
            waiting.push((store.landed().len(), add(&member, key)));
        }
        settle().await;
        if step % 4 != 0 && store.begun() > store.landed().len() as u64 {
            store.let_through(1);
            settle().await;
        }
        let mut still = Vec::new();
        for (landed, mut ticket) in waiting {
            match poll!(&mut ticket) {
                std::task::Poll::Ready(result) => {
                    result.unwrap();
                    most = most.max(store.landed().len() - landed);
                }
                std::task::Poll::Pending => {
                    assert!(store.landed().len() - landed < 2, "two writes ended and it still waits");
                    still.push((landed, ticket));
                }
            }
        }
        waiting = still;
    }
    assert_eq!(most, 2, "the run must reach the bound");
}

#[tokio::test]
async fn l9_2_one_flush_serves_4096_waiters() {
    let store = FaultStore::new();
    let (commit, member) = open(&store).await;
    store.stall();
    let first = add(&member, 0);
    settle().await;
    let tasks: Vec<_> = (0..4_096_u32)
        .map(|step| {
            let member = member.clone();
            tokio::spawn(async move { add(&member, (step % 251) as u8).await })
        })
        .collect();
    settle().await;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    store.resume();
    first.await.unwrap();
    for task in join_all(tasks).await {
        task.unwrap().unwrap();
    }
    assert_eq!(store.landed().len(), 2);
    assert_eq!(commit.health().batches, 2);
    assert_eq!(values(&member).values().sum::<u64>(), 4_097);
    assert_eq!(durable(&store.records()), values(&member));
}

#[tokio::test]
async fn l9_3_dropping_a_ticket_at_any_of_its_awaits_never_drops_what_was_staged() {
    // The ticket is polled 0 to 3 times: unpolled, behind the batch in flight, after it, in its own.
    for polls in 0..=3 {
        let store = FaultStore::new();
        let (_commit, member) = open(&store).await;
        store.stall();
        let first = add(&member, 1);
        settle().await;
        let mut dropped = add(&member, 2);
        for poll in 0..polls {
            assert!(poll!(&mut dropped).is_pending());
            if poll == 1 {
                store.let_through(1);
            }
            settle().await;
        }
        drop(dropped);
        store.resume();
        first.await.unwrap();
        settle().await;
        assert_eq!(durable(&store.records()), [(1, 1), (2, 1)].into(), "after {polls} polls");
    }
}

#[tokio::test]
async fn l9_7_a_budget_refuses_its_own_transition_only() {
    let store = FaultStore::new();
    let config = CommitConfig::new().with_budget(Table::Receiver, Budget { records: 2, bytes: 18 });
    let commit = GroupCommit::open(store.arc(), config).await.unwrap();
    let member = commit.join(Counters::default());
    store.stall();
    let first = add(&member, 1);
    // Refused half-way: what it staged before the refusal is discarded with it.
    let refused = member.transition(|_, stage| {
        stage.put(Table::Receiver, name(2), Bytes::from_static(&[0; 8])).unwrap();
        let refused = stage.put(Table::Receiver, name(3), Bytes::new());
        stage.rewind();
        refused
    });
    let second = add(&member, 2);
    let over_bytes = member.transition(|_, stage| stage.put(Table::Receiver, name(1), Bytes::from_static(&[0; 9])));
    store.resume();
    assert_eq!(first.await.unwrap(), 1);
    assert_eq!(refused.await.unwrap().unwrap_err().limit, Limit::Records(2));
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(over_bytes.await.unwrap().unwrap_err().limit, Limit::Bytes(18));
    assert_eq!(durable(&store.records()), [(1, 1), (2, 1)].into());
    let removed = member.transition(|counters, stage| counters.remove(1, stage));
    let replaced = add(&member, 3);
    removed.await.unwrap();
    assert_eq!(replaced.await.unwrap(), 1);
    assert_eq!(durable(&store.records()), values(&member));
}
