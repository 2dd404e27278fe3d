//! Every record of a store, read by its owner's own decoder.

use crate::{
    clock::WallMs,
    layer::boundary::{
        cleared::{CLEARED_KEY, Cleared},
        inspection::{self, ReceiverRecord},
    },
    layer::{local::NAMESPACES_KEY, single_use::record as single_use},
    storage::{
        BadRecord, Key, RecordName, Scan, ScanError, Store, Table,
        birth::{BIRTH_KEY, Birth},
        floor::{FLOOR_KEY, Floors},
        lease::{self, REMOVED_KEY, SenderRecord},
        service::{self, MIGRATION_KEY},
    },
};

/// What a record says.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Sender(SenderRecord),
    Receiver(ReceiverRecord),
    Custody,
    Birth(Birth),
    Floors(Floors),
    /// One that is whole, and of which nothing is read here: registrations, cleared marks, removed senders,
    /// single-use authority, a migration's.
    Other,
}

/// Reads a record that was found under `key`.
///
/// # Errors
/// Why it cannot be restored (law L11.1).
pub(super) fn read(table: Table, key: &[u8], value: &[u8]) -> Result<Content, &'static str> {
    const NONE: &str = "it does not decode";
    match table {
        Table::Sender => lease::read_sender(key, value).map(Content::Sender),
        Table::Receiver => inspection::read_receiver(key, value).map(Content::Receiver),
        Table::Custody => inspection::read_custody(key, value).map(|()| Content::Custody),
        Table::Clock => match key {
            BIRTH_KEY => Birth::decode(value).map(Content::Birth).ok_or(NONE),
            FLOOR_KEY => Floors::decode(value).map(Content::Floors).ok_or(NONE),
            CLEARED_KEY => Cleared::decode(value).map(|_| Content::Other).ok_or(NONE),
            NAMESPACES_KEY => inspection::read_namespaces(value).then_some(Content::Other).ok_or(NONE),
            REMOVED_KEY => lease::read_removed(value).map(|()| Content::Other),
            MIGRATION_KEY => service::decode(value).then_some(Content::Other).ok_or(NONE),
            single_use::CLOCK_KEY => single_use::ClockRecord::decode(value).map(|_| Content::Other).ok_or(NONE),
            single_use::BIRTH_KEY => Birth::decode(value).map(|_| Content::Other).ok_or(NONE),
            // One that does not decode is read as a stop, and does what it should.
            single_use::STOP_KEY => Ok(Content::Other),
            _ => Err("its key is none that this release knows"),
        },
        Table::Nonce | Table::Approval | Table::Operation => {
            single_use::read(table, key, value).map(|()| Content::Other)
        }
    }
}

/// One table, read: what is whole, and what is not.
#[derive(Debug, Default)]
pub(super) struct TableRecords {
    pub(super) whole: Vec<(Key, usize, Content)>,
    pub(super) bad: Vec<BadRecord>,
}

impl TableRecords {
    pub(super) async fn read(store: &dyn Store, table: Table) -> Result<Self, ScanError> {
        Ok(Self::of(table, store.scan(table).await?))
    }

    pub(super) fn of(table: Table, scan: Scan) -> Self {
        let mut records = Self { whole: Vec::new(), bad: scan.bad };
        for (key, value) in scan.records {
            match read(table, &key, &value) {
                Ok(content) => records.whole.push((key.clone(), key.len() + value.len(), content)),
                Err(reason) => {
                    records.bad.push(BadRecord { name: RecordName::of(table, &key), reason: reason.to_owned() });
                }
            }
        }
        records
    }
}

/// What every mark starts from.
#[derive(Debug, Default)]
pub(super) struct Instants {
    pub(super) birth: Option<Birth>,
    /// The greatest instant at which the store admitted anything, as its readable records tell.
    pub(super) admitted: WallMs,
}

impl Instants {
    pub(super) async fn read(store: &dyn Store) -> Result<Self, ScanError> {
        let mut instants = Self::default();
        for table in [Table::Clock, Table::Receiver] {
            for (_, _, content) in TableRecords::read(store, table).await?.whole {
                match content {
                    Content::Birth(birth) => instants.birth = Some(birth),
                    Content::Floors(floors) => instants.admitted = instants.admitted.max(floors.admitted()),
                    Content::Receiver(receiver) => instants.admitted = instants.admitted.max(receiver.admitted),
                    _ => {}
                }
            }
        }
        Ok(instants)
    }
}
