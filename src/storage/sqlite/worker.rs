//! The thread that owns the connection: one job after the other.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::engine::Engine;

/// How many calls may wait for the thread; more wait for room, in order.
const QUEUE: usize = 16;

/// An answer that nobody waits for any more is dropped: the work is done all the same (law L9.3).
type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// The thread, from the side of its callers. Dropping it waits for the thread's end.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<(Job, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(super) fn start(mut engine: Engine) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<(Job, OwnedSemaphorePermit)>();
        let run = move || {
            for (job, _permit) in queue {
                job(&mut engine);
                engine.tidy();
            }
        };
        let thread = std::thread::Builder::new().name("admit-one-sqlite".to_owned()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), room: Arc::new(Semaphore::new(QUEUE)), thread: Mutex::new(Some(thread)) })
    }

    /// Has the thread do `work` and waits for what it returns; `None` if the thread is gone.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |engine| drop(answer.send(work(engine))));
        self.jobs.as_ref()?.send((job, permit)).ok()?;
        answered.await.ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of an SQLite store had panicked");
        }
    }
}
