//! The engines, what stands where in their files, and engines that are broken on purpose.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::{
    BoxFuture,
    storage::{
        Batch, CommitError, Key, OpenError, Scan, ScanError, Store, Table,
        simulated::{OnSimulated, Simulated},
    },
};

/// A record's place, and its value, or `None` where it is gone.
pub(super) type Word = ((Table, Key), Option<Bytes>);

/// A record's name, and where it stands.
pub(super) type Named = (RecordName, Place);

/// One engine over a directory in memory.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) name: &'static str,
    pub(super) open: fn(&Simulated) -> Result<Arc<dyn Store>, OpenError>,
    /// Where the newest word on each of these records stands, or on that it is gone.
    pub(super) words: fn(&Image, &[Word]) -> Vec<Named>,
    /// All files, cut into regions.
    pub(super) places: fn(&Image, &[Named]) -> Vec<Place>,
    /// The names of its regions, in order.
    pub(super) regions: &'static [&'static str],
    /// How many damages are tried.
    pub(super) cases: usize,
}

pub(super) const ENGINES: &[&Engine] = &[&JOURNAL];

const JOURNAL: Engine = Engine {
    name: "journal",
    open: journal::open,
    words: journal::words,
    places: journal::places,
    regions: &["head", "manifest", "record", "shared record", "tail", "unfinished", "witness"],
    cases: 4_200,
};

mod journal {
    use super::*;

    const SECTOR: usize = 512;
    /// A sector's tag, batch, index and count stand before what it carries.
    const SECTOR_HEAD: usize = 32;
    /// Sectors before the first frame.
    const HEAD_SECTORS: usize = 16;
    /// Where a sector has its index within its batch.
    const FIRST_OF_BATCH: std::ops::Range<usize> = 24..28;
    /// A record's checksum and place, before its kind, its lengths, its key and its value.
    const BEFORE_KIND: usize = 28;

    pub(super) fn open(files: &Simulated) -> Result<Arc<dyn Store>, OpenError> {
        Ok(OnSimulated::open(files)?)
    }

    /// What a record has before its key, from its kind on.
    fn kind_and_lengths(((table, key), value): &Word) -> Vec<u8> {
        let kind = if value.is_some() { 1 } else { 2 };
        let value = value.as_ref().map_or(0, Bytes::len) as u32;
        [&[kind, table.tag()], &(key.len() as u16).to_le_bytes()[..], &value.to_le_bytes()].concat()
    }

    pub(super) fn words(image: &Image, records: &[Word]) -> Vec<(RecordName, Place)> {
        let mut words = Vec::new();
        for word in records {
            let ((table, key), value) = word;
            let sought = [&kind_and_lengths(word)[..], key, value.as_deref().unwrap_or(&[])].concat();
            // The newest is the last one of the last file.
            let found = image.iter().rev().filter(|(name, _)| name.ends_with(".log")).find_map(|(name, file)| {
                let at: Vec<_> = (HEAD_SECTORS * SECTOR..file.len()).filter(|at| at % SECTOR >= SECTOR_HEAD).collect();
                let payload: Vec<u8> = at.iter().map(|at| file[*at]).collect();
                let start = payload.windows(sought.len()).rposition(|window| window == sought)?;
                Some((name, at[start - BEFORE_KIND..start + sought.len()].to_vec()))
            });
            assert!(found.is_some() || value.is_none(), "no file holds it");
            if let Some((file, bytes)) = found {
                let region = if *table == Table::Clock { "shared record" } else { "record" };
                // Cut where sectors end.
                let pieces = bytes.chunk_by(|one, next| one + 1 == *next);
                let place = |piece: &[usize]| place(region, file, piece[0], piece[piece.len() - 1] + 1);
                words.extend(pieces.map(|piece| (RecordName::of(*table, key), place(piece))));
            }
        }
        words
    }

    pub(super) fn places(image: &Image, words: &[(RecordName, Place)]) -> Vec<Place> {
        let mut places: Vec<_> = words.iter().map(|(_, place)| place.clone()).collect();
        for (name, file) in image {
            if !name.ends_with(".log") {
                let region = if name == "store" { "witness" } else { "unfinished" };
                places.push(place(region, name, 0, file.len()));
                continue;
            }
            places.push(place("head", name, 0, HEAD_SECTORS * SECTOR));
            // The fill of a segment stands between the two copies of its head.
            let fill = &file[SECTOR..2 * SECTOR];
            for start in (HEAD_SECTORS * SECTOR..file.len()).step_by(SECTOR) {
                let sector = &file[start..start + SECTOR];
                let first = sector[FIRST_OF_BATCH] == [0; 4];
                match sector == fill {
                    true => places.push(place("tail", name, start, start + SECTOR)),
                    false if first => places.push(place("manifest", name, start, start + SECTOR)),
                    false => {}
                }
            }
        }
        places
    }
}

fn place(region: &'static str, file: &str, start: usize, end: usize) -> Place {
    Place { region, file: file.to_owned(), start, end }
}

/// What a test takes away from an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Not,
    /// What it cannot read is as if it had never been there.
    Forgets,
    /// It gives an older value of what it cannot read, as without a checksum and a place of its own it might.
    Older,
}

impl Broken {
    pub(super) fn over(self, store: Arc<dyn Store>, history: &History) -> Arc<dyn Store> {
        match self {
            Broken::Not => store,
            Broken::Forgets => Arc::new(Instead { store, older: BTreeMap::new() }),
            Broken::Older => {
                let named = history.older.iter();
                let named =
                    named.map(|((table, key), value)| (RecordName::of(*table, key), (key.clone(), value.clone())));
                Arc::new(Instead { store, older: named.collect() })
            }
        }
    }
}

/// A mock around an engine: gives something else instead of what cannot be read.
#[derive(Debug)]
struct Instead {
    store: Arc<dyn Store>,
    older: BTreeMap<RecordName, (Key, Bytes)>,
}

impl Store for Instead {
    fn scan(&self, table: Table) -> BoxFuture<'_, Result<Scan, ScanError>> {
        Box::pin(async move {
            let mut scan = self.store.scan(table).await?;
            let bad = std::mem::take(&mut scan.bad);
            scan.records.extend(bad.into_iter().filter_map(|bad| self.older.get(&bad.name).cloned()));
            Ok(scan)
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), CommitError>> {
        self.store.commit(batch)
    }

    fn discard(&self, name: RecordName) -> BoxFuture<'_, Result<bool, CommitError>> {
        self.store.discard(name)
    }

    fn reopen(&self) -> BoxFuture<'_, Result<(), OpenError>> {
        self.store.reopen()
    }

    fn durable(&self) -> bool {
        self.store.durable()
    }
}
