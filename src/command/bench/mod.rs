//! `store bench`: how many admissions a second this machine makes durable, and how long each takes.
//!
//! A fresh store, the real boundary over group commit, and the flush floor beside them, in one directory. Whatever ends
//! it, an interrupt included, the directory is left as it was; only a kill leaves its directory behind, whose name says
//! what it is.

mod chart;
mod figures;
mod floor;
mod load;
mod place;
mod scratch;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

pub(super) use self::place::Place;
use self::{
    figures::{Admissions, Figures, Times},
    load::Receiver,
    scratch::Scratch,
};
use super::{
    arguments::Bench,
    exit::{Exit, Failure},
    output::Done,
    progress, runtime,
};

/// Measures what is asked for.
pub(super) fn run(asked: &Bench) -> Result<Done, Failure> {
    let scratch = Scratch::new(asked.place.directory())?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = runtime()?;
    let measured = runtime.block_on(async {
        tokio::select! {
            figures = measure(asked, scratch.path(), &stop) => figures,
            interrupted = interrupted() => Err(interrupted),
        }
    });
    stop.store(true, Ordering::Relaxed);
    // The store is closed with the last task that holds it, and only then is its directory free to be removed.
    drop(runtime);
    scratch.remove()?;
    let figures = measured?;
    if let Some(path) = &asked.svg {
        let svg = chart::draw(&figures)?;
        std::fs::write(path, svg).map_err(|error| Failure::io("write", path, &error))?;
    }
    let text = text(&figures, asked.svg.as_deref());
    Ok(Done { exit: Exit::Done, json: document(&figures, asked.svg.as_deref()), text })
}

async fn measure(asked: &Bench, directory: &Path, stop: &Arc<AtomicBool>) -> Result<Figures, Failure> {
    let time = Duration::from_millis(asked.time);
    let bar = progress::bar(asked.in_flight.len() as u64 + 1, "flush floor");
    let floor = floor::measure(directory.join("floor"), time, stop.clone()).await?;
    bar.inc(1);
    // A directory of its own, so that the engine finds no other files in it.
    let mut receiver = Receiver::start(asked.place.open(directory.join("store")).await?).await?;
    let mut admissions = Vec::new();
    for in_flight in &asked.in_flight {
        bar.set_message(format!("{in_flight} in flight"));
        admissions.push(receiver.measure(in_flight.get(), time).await?);
        bar.inc(1);
    }
    receiver.stop().await;
    bar.finish_and_clear();
    Ok(Figures { engine: asked.place.engine(), directory: asked.place.directory().to_owned(), floor, admissions })
}

/// Gives why it stops, once the process is told to.
async fn interrupted() -> Failure {
    #[cfg(unix)]
    let told = {
        use tokio::signal::unix::{SignalKind, signal};
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(mut interrupt), Ok(mut terminate)) => tokio::select! {
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
            },
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    };
    #[cfg(not(unix))]
    let told = tokio::signal::ctrl_c().await;
    match told {
        Ok(()) => Failure::new(Exit::Failed, "interrupted", "interrupted; what it had made is removed"),
        Err(error) => Failure::new(Exit::Failed, "io", format!("cannot listen for interrupts: {error}")),
    }
}

fn document(figures: &Figures, svg: Option<&Path>) -> Value {
    let times = |times: &Times| json!({ "p50": times.p50, "p99": times.p99, "greatest": times.greatest });
    let admissions = figures.admissions.iter().map(|of| {
        json!({
            "in_flight": of.in_flight,
            "admitted": of.admitted,
            "seconds": of.seconds,
            "per_second": of.per_second(),
            "batches": of.batches,
            "batch": of.batch(),
            "latency_ms": times(&of.latency),
        })
    });
    json!({
        "engine": figures.engine,
        "directory": figures.directory,
        "flush_floor": {
            "bytes": floor::BYTES,
            "flushes": figures.floor.flushes,
            "per_second": figures.floor.per_second(),
            "latency_ms": times(&figures.floor.latency),
        },
        "admissions": admissions.collect::<Vec<_>>(),
        "svg": svg,
    })
}

fn text(figures: &Figures, svg: Option<&Path>) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["in flight", "admissions/s", "a batch", "p50 ms", "p99 ms", "greatest ms"]);
    for of in &figures.admissions {
        let Admissions { in_flight, latency, .. } = of;
        table.add_row([
            in_flight.to_string(),
            format!("{:.0}", of.per_second()),
            format!("{:.1}", of.batch()),
            format!("{:.3}", latency.p50),
            format!("{:.3}", latency.p99),
            format!("{:.3}", latency.greatest),
        ]);
    }
    let floor = &figures.floor;
    table.add_row([
        "flush floor".to_owned(),
        format!("{:.0}", floor.per_second()),
        "1.0".to_owned(),
        format!("{:.3}", floor.latency.p50),
        format!("{:.3}", floor.latency.p99),
        format!("{:.3}", floor.latency.greatest),
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{} in {}\n{table}\n", figures.engine, figures.directory.display());
    text += &format!("The floor writes {} bytes and flushes, over and over.\n", floor::BYTES);
    if let Some(path) = svg {
        text += &format!("Drawn into {}.\n", path.display());
    }
    text
}
