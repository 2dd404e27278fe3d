use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Semaphore;
use tower::Layer;

use super::{
    Reassemble, ReassemblyConfig,
    account::{Account, Peer},
    core::{Gathered, Now},
};
use crate::{clock::Clock, layer::verify::VerifyLayer, task};

/// The longest that what is due is held, should the wall clock be stepped forward while the task that lets it go sleeps.
const PURGE_WITHIN: Duration = Duration::from_secs(1);

/// Puts [`Reassemble`] in front of a `Service<Verified>`. All its services share what is gathered.
#[derive(Clone)]
pub struct ReassemblyLayer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) verify: VerifyLayer,
    /// One message is joined at a time, so that one at most is held twice.
    pub(super) joining: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

struct Table {
    gathered: Gathered,
    /// Whether a task lets go what is due.
    purging: bool,
}

impl ReassemblyLayer {
    pub(in crate::layer) fn new(verify: VerifyLayer, clock: Arc<dyn Clock>, config: ReassemblyConfig) -> Self {
        let table = Mutex::new(Table { gathered: Gathered::new(config), purging: false });
        Self { shared: Arc::new(Shared { verify, joining: Arc::new(Semaphore::new(1)), clock, table }) }
    }
}

impl Shared {
    /// Runs one transition at one reading of the clocks, made under the lock. Starts the task that lets go what is held
    /// then, if none runs.
    pub(super) fn transition<R>(self: &Arc<Self>, transition: impl FnOnce(&mut Gathered, Now) -> R) -> R {
        let mut table = self.lock();
        let now = self.now();
        let answer = transition(&mut table.gathered, now);
        let due = table.gathered.due_in(now).is_some() && !std::mem::replace(&mut table.purging, true);
        report(&mut table.gathered);
        drop(table);
        if due {
            let shared = Arc::downgrade(self);
            task::spawn(Box::pin(async move {
                while let Some(wait) = shared.upgrade().and_then(|shared| shared.purge()) {
                    task::sleep(wait).await;
                }
            }));
        }
        answer
    }

    /// A complete message with these parts is no longer held. Called from whatever drops it, on a runtime or not.
    pub(super) fn let_go(&self, parts: Vec<(Peer, usize)>) {
        let mut table = self.lock();
        table.gathered.let_go(parts);
        report(&mut table.gathered);
    }

    /// Lets go what is due, and says when to do so again; `None` once nothing is held.
    fn purge(&self) -> Option<Duration> {
        let mut table = self.lock();
        let now = self.now();
        table.gathered.purge(now);
        report(&mut table.gathered);
        let due_in = table.gathered.due_in(now);
        table.purging = due_in.is_some();
        // A clock of milliseconds says so at most one of them later; and never a spin.
        due_in.map(|due_in| due_in.clamp(Duration::from_millis(1), PURGE_WITHIN))
    }

    /// What is held in all.
    fn held(&self) -> Account {
        self.lock().gathered.held()
    }

    fn now(&self) -> Now {
        Now { wall: self.clock.wall(), monotonic: self.clock.monotonic() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A panic under it leaves accounts that are too high at worst, which end with their entries.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(gathered: &mut Gathered) {
    let held = gathered.held();
    metrics::gauge!("admit_one_reassembly_messages").set(held.messages as f64);
    metrics::gauge!("admit_one_reassembly_bytes").set(held.bytes as f64);
    for (reason, count) in gathered.take_failures() {
        metrics::counter!("admit_one_reassembly_failures_total", "reason" => reason).increment(count);
    }
}

impl<S> Layer<S> for ReassemblyLayer {
    type Service = Reassemble<S>;

    fn layer(&self, inner: S) -> Reassemble<S> {
        Reassemble::new(self.clone(), inner)
    }
}

impl fmt::Debug for ReassemblyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReassemblyLayer").field("held", &self.shared.held()).finish_non_exhaustive()
    }
}
