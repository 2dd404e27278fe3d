//! An engine of files over the directory in memory, on its caller's thread.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{
    BoxFuture,
    storage::{
        Batch, CommitError, OpenError, RecordName, Scan, ScanError, Store, Table,
        directory::simulated::{Model, Simulated},
    },
};

/// What the writer thread of an engine of files does, as calls.
pub(crate) trait Engine: fmt::Debug + Send + Sized + 'static {
    /// Its name in what the tests print.
    const NAME: &'static str;
    /// Whether a batch is there whole or not at all after a crash. Where it is not, each of its records is, and the order
    /// law holds (law L9.2).
    const WHOLE_BATCHES: bool;

    fn open(files: &Simulated) -> Result<Self, OpenError>;
    fn scan(&self, table: Table) -> Result<Scan, String>;
    fn commit(&mut self, batch: Batch) -> Result<(), CommitError>;
    fn discard(&mut self, name: RecordName) -> Result<bool, CommitError>;
    fn reopen(&mut self) -> Result<(), OpenError>;
    /// What follows each batch.
    fn tidy(&mut self) {}
    /// Some of what is done while nothing is asked, if there is any.
    fn work(&mut self) {}
    /// What is done once nothing was asked for long.
    fn seal(&mut self) {}
}

/// The records of an engine, all of them readable.
pub(crate) fn held<E: Engine>(engine: &E, context: &dyn Fn() -> String) -> Model {
    let mut model = Model::new();
    for table in Table::ALL {
        let scan = engine.scan(table).unwrap_or_else(|reason| panic!("{}: {reason}", context()));
        assert_eq!(scan.bad, [], "{}", context());
        model.extend(scan.records.into_iter().map(|(key, value)| ((table, key.to_vec()), value.to_vec())));
    }
    model
}

/// An engine as a store. As on a thread of its own, a commit takes a while, in which others gather, and is answered
/// before the work that follows it, which is done before the next.
#[derive(Debug)]
pub(crate) struct Driven<E>(Mutex<E>);

impl<E: Engine> Driven<E> {
    pub(crate) fn open(files: &Simulated) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self(Mutex::new(E::open(files)?))))
    }

    fn engine(&self) -> MutexGuard<'_, E> {
        self.0.lock().expect("no test panics inside")
    }
}

impl<E: Engine> Store for Driven<E> {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move { self.engine().scan(table).map_err(|reason| ScanError { table, reason }) })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            // Who waits for the last batch hears of it first, so what it is told is not dated by this one.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut engine = self.engine();
            engine.tidy();
            engine.work();
            engine.commit(batch)
        })
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        Box::pin(async move { self.engine().discard(name) })
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        Box::pin(async move { self.engine().reopen() })
    }

    fn durable(&self) -> bool {
        true
    }
}
