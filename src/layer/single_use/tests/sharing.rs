//! Many calls, few flushes (law L9.2).

use super::*;
use crate::storage::Table;

#[tokio::test]
async fn a_call_is_three_batches_and_each_stages_its_operation_its_marks_and_the_clock() {
    let node = Node::new().await;
    let before = node.store.landed().len();
    let marks = [nonce(1, T0 + 400), approval(1, T0 + 400, T0 + 400)];
    let reservation = node.run(&operation(1, 1, T0 + 400), &marks).await.unwrap();
    node.clock.advance(Duration::from_millis(1));
    let dispatching = reservation.begin(&[]).await.unwrap();
    assert!(dispatching.finish(receipt(b"done")).await.is_ok());
    let landed = node.store.landed().split_off(before);
    let tables: Vec<Vec<Table>> =
        landed.iter().map(|batch| batch.writes.iter().map(|write| write.table).collect()).collect();
    // The mock puts the clock table first, as engines must; the others are as they were staged, the operation before its
    // marks (law L12.2). An end reads no clock.
    let moved = vec![Table::Operation, Table::Nonce, Table::Approval];
    let timed = [vec![Table::Clock], moved.clone()].concat();
    assert_eq!(tables, [timed.clone(), timed, moved]);
}

#[tokio::test]
async fn l9_2_a_thousand_reservations_in_flight_share_flushes() {
    let node = Node::with(|config| config.nonces.per_subject = 2_000).await;
    let before = node.store.landed().len();
    node.store.stall();
    let calls = futures::future::join_all((0..1_000).map(|seed| {
        let node = &node;
        async move {
            let reservation = node.single_use.reserve(&[nonce(seed, T0 + 400)], &[]).await.unwrap();
            reservation.begin(&[]).await.unwrap().commit(()).await.unwrap().release(&[]).unwrap()
        }
    }));
    let flow = async {
        tokio::task::yield_now().await;
        node.store.resume();
    };
    let (calls, ()) = futures::join!(calls, flow);
    assert_eq!(calls.len(), 1_000);
    let batches = node.store.landed().len() - before;
    assert!(batches <= 8, "three steps of a thousand calls took {batches} flushes");
    assert_eq!(node.single_use.health().nonces, 1_000);
}

#[tokio::test]
async fn l12_4_a_storm_of_exact_retries_runs_once_and_all_answer() {
    let node = Node::with(|config| config.waiters_per_operation = 200).await;
    let op = operation(1, 1, T0 + 400);
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let callers = futures::future::join_all((0..100).map(|seed| {
        let (node, op, runs) = (&node, &op, &runs);
        async move {
            let recorded = match node.single_use.present(op, &[nonce(seed % 7, T0 + 400)], &[]).await.unwrap() {
                Presentation::Recorded(recorded) => recorded,
                Presentation::Run(reservation) => match reservation.begin(&[]).await {
                    Err(Refusal::Superseded) => node.single_use.follow(op, &[]).await.unwrap(),
                    begun => {
                        let dispatching = begun.unwrap();
                        runs.fetch_add(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        dispatching.finish(receipt(b"once")).await.unwrap()
                    }
                },
            };
            recorded.release(&[]).unwrap().into_inner()
        }
    }));
    let answers = callers.await;
    assert!(answers.iter().all(|answer| *answer == receipt(b"once")));
    assert_eq!(runs.into_inner(), 1);
}

#[tokio::test]
async fn over_the_journal_everything_survives_a_restart() {
    use crate::storage::{Journal, JournalConfig};
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(T0 as u64 * 1_000));
    let config = SingleUseConfig::new().with_greatest_lifetime(LIFETIME as u64);
    let op = operation(1, 1, T0 + 400);
    let [nonce, pending, begun] = [nonce(1, T0 + 400), nonce(2, T0 + 400), nonce(3, T0 + 400)];
    let open = async || {
        let journal = Arc::new(Journal::open(directory.path(), JournalConfig::default()).unwrap());
        let commit = GroupCommit::open(journal, CommitConfig::new()).await.unwrap();
        let single_use = SingleUse::open(&commit, clock.clone(), config.clone()).await.unwrap();
        (commit, single_use)
    };
    let (commit, single_use) = open().await;
    clock.advance(Duration::from_secs(61));
    let Presentation::Run(reservation) = single_use.present(&op, &[nonce], &[]).await.unwrap() else {
        panic!("it ran")
    };
    let finished = reservation.begin(&[]).await.unwrap().finish(receipt(b"done")).await;
    assert!(finished.is_ok());
    let pending_call = single_use.reserve(&[pending], &[]).await.unwrap();
    let running_call = single_use.reserve(&[begun], &[]).await.unwrap().begin(&[]).await.unwrap();
    commit.shutdown().await;
    drop((pending_call, running_call, finished, single_use, commit));
    let (commit, single_use) = open().await;
    let states = [nonce, pending, begun].map(|mark| single_use.state(&mark.id, mark.kind));
    assert_eq!(states, [MarkState::Committed, MarkState::Reserved, MarkState::Dispatching]);
    assert_eq!(single_use.recover().await.released, 1);
    let Presentation::Recorded(recorded) = single_use.present(&op, &[nonce], &[]).await.unwrap() else {
        panic!("again")
    };
    assert_eq!(recorded.release(&[]).unwrap().into_inner(), receipt(b"done"));
    commit.shutdown().await;
}
