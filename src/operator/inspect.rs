//! What a store holds.

use serde::Serialize;

use super::{
    by_name, by_table,
    records::{Content, Instants, TableRecords},
    verify::count,
};
use crate::{
    clock::WallMs,
    identity::Did,
    message::{Class, StreamKey},
    storage::{RecordName, ScanError, Store, Table, service},
};

/// One table's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// The table.
    #[serde(serialize_with = "by_table")]
    pub table: Table,
    /// Records, those that cannot be restored included.
    pub records: u64,
    /// Bytes of the readable ones' keys and values.
    pub bytes: u64,
}

/// A stream that this node receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceiverStream {
    /// Its record.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// The network.
    pub network: u64,
    /// Who signed.
    pub origin: Did,
    /// To whom.
    pub destination: Did,
    /// The class.
    pub class: &'static str,
    /// The incarnation that its window is of.
    pub incarnation: u64,
    /// The highest sequence admitted.
    pub high: u64,
    /// How many of its window's slots are filled, at most 32.
    pub filled: u32,
    /// Whom it is charged to (law L10.2).
    pub introducer: String,
    /// The greatest expiry that it ever admitted, in wall milliseconds: it is spent once this has passed by the clock
    /// tolerance, an Application stream another 7 days later where custody is enabled (law L10.5).
    pub expires_at: WallMs,
    /// Whether that instant has passed.
    pub expired: bool,
    /// Bytes of its key and value.
    pub bytes: u64,
}

/// A stream that this node sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SenderStream {
    /// Its record.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// The network.
    pub network: u64,
    /// Who signs.
    pub origin: Did,
    /// To whom.
    pub destination: Did,
    /// The class.
    pub class: &'static str,
    /// Its running incarnation.
    pub incarnation: u64,
    /// The last sequence that its lease covers.
    pub leased: u64,
    /// Bytes of its key and value.
    pub bytes: u64,
}

/// A record that cannot be restored: whatever relies on it is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// The record.
    #[serde(serialize_with = "by_name")]
    pub record: RecordName,
    /// Its table.
    #[serde(serialize_with = "by_table")]
    pub table: Table,
    /// Why.
    pub reason: String,
}

/// What [`inspect`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Whether a migration into the store has not ended: no node opens it.
    pub migrating: bool,
    /// What was issued at or before this is refused, in wall milliseconds (law L9.9); `None` where no node ever opened it.
    pub birth_mark: Option<WallMs>,
    /// Whether that mark is raised no more.
    pub birth_settled: Option<bool>,
    /// The tables, in the order of their tags.
    pub tables: Vec<TableSize>,
    /// Streams that this node receives.
    pub receivers: Vec<ReceiverStream>,
    /// Streams that this node sends.
    pub senders: Vec<SenderStream>,
    /// Mails in custody (law L10.6).
    pub custody: u64,
    /// Records that cannot be restored.
    pub unavailable: Vec<Unavailable>,
}

/// Reads what a store holds. `now` is the wall clock, in milliseconds.
///
/// # Errors
/// [`ScanError`] when a table cannot be listed (law L11.3).
pub async fn inspect(store: &dyn Store, now: WallMs) -> Result<Inspection, ScanError> {
    let instants = Instants::read(store).await?;
    let mut inspection = Inspection {
        migrating: service::is_unfinished(&store.scan(Table::Clock).await?),
        birth_mark: instants.birth.as_ref().map(|birth| birth.mark()),
        birth_settled: instants.birth.as_ref().map(|birth| birth.settled()),
        tables: Vec::new(),
        receivers: Vec::new(),
        senders: Vec::new(),
        custody: 0,
        unavailable: Vec::new(),
    };
    for table in Table::ALL {
        let TableRecords { whole, bad } = TableRecords::read(store, table).await?;
        let bytes = whole.iter().map(|(_, bytes, _)| count(*bytes)).sum();
        inspection.tables.push(TableSize { table, records: count(whole.len() + bad.len()), bytes });
        let unavailable = bad.into_iter().map(|bad| Unavailable { record: bad.name, table, reason: bad.reason });
        inspection.unavailable.extend(unavailable);
        for (key, bytes, content) in whole {
            let record = RecordName::of(table, &key);
            match content {
                Content::Receiver(receiver) => {
                    let StreamKey { network, origin, destination, class } = receiver.stream;
                    inspection.receivers.push(ReceiverStream {
                        record,
                        network: network.0,
                        origin,
                        destination,
                        class: class.label(),
                        incarnation: receiver.incarnation.0,
                        high: receiver.high,
                        filled: receiver.filled,
                        introducer: receiver.introducer,
                        expires_at: receiver.expiry,
                        expired: receiver.expiry < now,
                        bytes: count(bytes),
                    });
                }
                Content::Sender(sender) => {
                    let Some(StreamKey { network, origin, destination, class }) = StreamKey::from_bytes(&sender.stream)
                    else {
                        continue;
                    };
                    inspection.senders.push(SenderStream {
                        record,
                        network: network.0,
                        origin,
                        destination,
                        class: Class::label(class),
                        incarnation: sender.incarnation.0,
                        leased: sender.through,
                        bytes: count(bytes),
                    });
                }
                Content::Custody => inspection.custody += 1,
                _ => {}
            }
        }
    }
    inspection.receivers.sort_by_key(|stream| stream.record);
    inspection.senders.sort_by_key(|stream| stream.record);
    Ok(inspection)
}
