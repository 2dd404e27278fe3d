//! `store inspect`: what a store holds.

use admit_one::{
    SystemClock,
    clock::Clock as _,
    operator::{self, Inspection, ReceiverStream, SenderStream},
};
use comfy_table::{CellAlignment, Table, presets};

use super::{document, open};
use crate::command::{
    arguments::Inspect,
    exit::{Exit, Failure},
    output::{self, Done, Paint},
};

pub(super) async fn run(asked: &Inspect) -> Result<Done, Failure> {
    let store = open(&asked.store).await?;
    let inspection = operator::inspect(&*store, SystemClock::new().wall()).await?;
    Ok(Done { exit: Exit::Done, json: document(&inspection)?, text: text(output::paint(), &inspection) })
}

fn text(paint: Paint, inspection: &Inspection) -> String {
    let mut text = match (inspection.birth_mark, inspection.birth_settled) {
        (Some(mark), Some(true)) => format!("Born: refuses what was issued up to {mark} ms\n"),
        (Some(mark), _) => format!("Born: refuses what was issued up to {mark} ms, and may raise that yet\n"),
        (None, _) => "Not born: no node ever opened it\n".to_owned(),
    };
    if inspection.migrating {
        text += &format!("{}\n", paint.bad("A migration into it has not ended: no node opens it"));
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["table", "records", "bytes"]);
    for size in &inspection.tables {
        table.add_row([size.table.name().to_owned(), size.records.to_string(), size.bytes.to_string()]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text += &format!("{table}\n");
    for of in &inspection.receivers {
        let ReceiverStream {
            record, network, origin, destination, class, incarnation, high, filled, introducer, ..
        } = of;
        let expiry =
            if of.expired { format!("expired at {}", of.expires_at) } else { format!("expires at {}", of.expires_at) };
        text += &format!(
            "\n{}\n  {class} of network {network}\n  from {origin}\n  to   {destination}\n  \
             incarnation {incarnation}, high {high}, {filled} of 32 slots filled, charged to {introducer}, {expiry} ms, {} bytes\n",
            paint.strong(&record.to_string()),
            of.bytes,
        );
    }
    for of in &inspection.senders {
        let SenderStream { record, network, origin, destination, class, incarnation, leased, bytes, .. } = of;
        text += &format!(
            "\n{}\n  {class} of network {network}\n  from {origin}\n  to   {destination}\n  \
             incarnation {incarnation}, leased up to {leased}, {bytes} bytes\n",
            paint.strong(&record.to_string()),
        );
    }
    for of in &inspection.unavailable {
        text += &format!("\n{} {}\n", paint.bad(&format!("{} is unavailable:", of.record)), of.reason);
    }
    text
}
