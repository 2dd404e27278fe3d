//! The tool: it appends a note to a file, outside of the store, and says which one it became. Running it twice shows.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use admit_one::layer::{
    credential::Permitted,
    single_use::{Outcome, OutcomeKind},
};
use futures::future::BoxFuture;
use tokio::{io::AsyncWriteExt as _, sync::Mutex};
use tower::Service;

use crate::protocol::{Event, Point, hold, tell};

#[derive(Debug, Clone)]
pub struct Notes {
    file: Arc<Mutex<PathBuf>>,
    hold: Option<Point>,
    told: Arc<AtomicBool>,
}

impl Notes {
    pub fn new(file: PathBuf, hold: Option<Point>) -> Self {
        Self { file: Arc::new(Mutex::new(file)), hold, told: Arc::default() }
    }
}

/// The same for whatever transport brought the request.
impl<R: Send + 'static> Service<Permitted<R>> for Notes {
    type Response = Outcome;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Outcome, std::io::Error>>;

    /// Never ready where a call is to stop before it begins.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        if self.hold != Some(Point::Reserved) {
            return Poll::Ready(Ok(()));
        }
        if !self.told.swap(true, Ordering::SeqCst) {
            tell(&Event::At { point: Point::Reserved, outcome: None });
        }
        Poll::Pending
    }

    fn call(&mut self, permitted: Permitted<R>) -> Self::Future {
        let Self { file, hold: at, .. } = self.clone();
        Box::pin(async move {
            if at == Some(Point::Begun) {
                hold(Point::Begun, None).await;
            }
            let text = String::from_utf8_lossy(permitted.arguments()).replace('\n', " ");
            let number = append(&*file.lock().await, &text).await?;
            if at == Some(Point::Effect) {
                hold(Point::Effect, None).await;
            }
            // Drawn anew each time it runs, so that the same bytes can only be the same run's.
            let receipt: u64 = rand::random();
            let bytes = format!("note {number}: {text:?}, receipt {receipt:016x}").into();
            Ok(Outcome { kind: OutcomeKind::Receipt, bytes })
        })
    }
}

/// Appends a note, durably, and says its number.
async fn append(file: &PathBuf, text: &str) -> Result<usize, std::io::Error> {
    let before = tokio::fs::read_to_string(file).await.unwrap_or_default().lines().count();
    let mut file = tokio::fs::OpenOptions::new().create(true).append(true).open(file).await?;
    file.write_all(format!("{text}\n").as_bytes()).await?;
    file.sync_data().await?;
    Ok(before + 1)
}
