//! The one seam through which the crate names runtime futures and starts tasks, so that a target whose
//! futures are not `Send` changes this file alone.

use std::{pin::Pin, time::Duration};

/// A boxed future: `Send` on every target but the browser's, where no task moves between threads.
#[cfg(not(target_family = "wasm"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future: `Send` on every target but the browser's, where no task moves between threads.
#[cfg(target_family = "wasm")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Starts a task on the current runtime and leaves it running.
pub(crate) fn spawn(task: BoxFuture<'static, ()>) {
    #[cfg(not(target_family = "wasm"))]
    tokio::spawn(task);
    #[cfg(target_family = "wasm")]
    tokio::task::spawn_local(task);
}

/// What `work` gives, or `None` if it takes longer than `time`; it is dropped then.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(time, work).await.ok()
}

/// Ready once `time` has passed.
pub(crate) fn sleep(time: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(time))
}
