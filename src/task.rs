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

/// Runs `work`, which computes for long, where it holds no other task up. `None` if it panicked or was given up at the
/// runtime's end.
#[cfg(not(target_family = "wasm"))]
pub(crate) async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Runs `work`, which computes for long. There is one thread, so others wait for it.
#[cfg(target_family = "wasm")]
pub(crate) async fn blocking<R: 'static>(work: impl FnOnce() -> R + 'static) -> Option<R> {
    Some(work())
}

/// Ready once `time` has passed.
pub(crate) fn sleep(time: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(time))
}
