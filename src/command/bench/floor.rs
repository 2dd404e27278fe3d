//! The flush floor: what the disk itself takes to make a page durable in a file of fixed size.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::figures::{Floor, Times};
use crate::command::exit::{Exit, Failure};

/// What is written before each flush.
pub(super) const BYTES: usize = 4_096;
/// How many places the file has.
const PAGES: u64 = 1_024;

/// Writes and flushes for `time`, or until `stop`, in a fresh file at `path`.
pub(super) async fn measure(path: PathBuf, time: Duration, stop: Arc<AtomicBool>) -> Result<Floor, Failure> {
    let measured = tokio::task::spawn_blocking(move || {
        loop_for(&path, time, &stop).map_err(|error| Failure::io("write and flush", &path, &error))
    });
    match measured.await {
        Ok(floor) => floor,
        Err(error) => Err(Failure::new(Exit::Failed, "io", format!("the flush floor was not measured: {error}"))),
    }
}

fn loop_for(path: &Path, time: Duration, stop: &AtomicBool) -> std::io::Result<Floor> {
    let mut file = File::create_new(path)?;
    for _ in 0..PAGES {
        file.write_all(&[0; BYTES])?;
    }
    file.sync_all()?;
    let mut samples = Vec::new();
    let began = Instant::now();
    loop {
        let flushes = samples.len() as u64;
        let started = Instant::now();
        file.seek(SeekFrom::Start(flushes % PAGES * BYTES as u64))?;
        file.write_all(&flushes.to_le_bytes().repeat(BYTES / 8))?;
        file.sync_data()?;
        samples.push(started.elapsed());
        if began.elapsed() >= time || stop.load(Ordering::Relaxed) {
            let seconds = began.elapsed().as_secs_f64();
            return Ok(Floor { flushes: samples.len() as u64, seconds, latency: Times::of(samples) });
        }
    }
}
