//! A record that goes bad in the journal's file: each of its bits, all of it, and the files around it. The engine is the
//! journal itself, over a directory in memory and over one on a disk.

use std::{fs, path::Path};

use super::*;
use crate::storage::{
    Journal, JournalConfig, OpenError,
    simulated::{Image, OnSimulated, Simulated},
};

const SECTOR: usize = 512;
/// A sector's tag, batch, index and count stand before what it carries.
const SECTOR_HEAD: usize = 32;
/// Sectors before the first frame.
const HEAD_SECTORS: usize = 16;
/// A record's checksum, place, kind and lengths, before its key and value.
const RECORD_HEAD: usize = 36;

/// Where the bytes of the newest word on a record stand in a file: its head, its key, its value.
fn standing(file: &[u8], (_, key): &(Table, Key), value: &[u8]) -> Option<Vec<usize>> {
    let places = (HEAD_SECTORS * SECTOR..file.len()).filter(|place| place % SECTOR >= SECTOR_HEAD);
    let places: Vec<usize> = places.collect();
    let payload: Vec<u8> = places.iter().map(|place| file[*place]).collect();
    let sought = [key, value].concat();
    let at = payload.windows(sought.len()).rposition(|window| window == sought)?;
    Some(places[at - RECORD_HEAD..at + sought.len()].to_vec())
}

/// Exactly one file holds it.
fn located(image: &Image, place: &(Table, Key), value: &[u8]) -> (String, Vec<usize>) {
    let found = image.iter().filter(|(name, _)| name.ends_with(".log"));
    let mut found = found.filter_map(|(name, file)| Some((name.clone(), standing(file, place, value)?)));
    let only = found.next().expect("some file holds it");
    assert!(found.next().is_none());
    only
}

fn each_bit(table: Table) {
    watched(async |log| {
        let files = Simulated::default();
        let store: Arc<dyn Store> = OnSimulated::open(&files).unwrap();
        fill(&store).await;
        let records = read(&store).await;
        let twin = twin(&records, table).await;
        log.take();
        let image = files.image();
        let place = place(table, VICTIM);
        let (file, places) = located(&image, &place, &records[&place]);
        assert_eq!(places.len(), RECORD_HEAD + StreamKey::LEN + records[&place].len());
        for (number, at) in places.iter().enumerate() {
            for bit in 0..8 {
                let mut damaged = image.clone();
                damaged.get_mut(&file).unwrap()[*at] ^= 1 << bit;
                let store: Arc<dyn Store> = OnSimulated::open(&Simulated::holding(&damaged)).unwrap();
                check(&store, table, &twin, &log, &format!("{table:?} bit {bit} of byte {number} in the file")).await;
            }
        }
        // Gone: the file says that it was there (law L11.4).
        for blank in [0, 0xFF] {
            let mut damaged = image.clone();
            places.iter().for_each(|at| damaged.get_mut(&file).unwrap()[*at] = blank);
            let store: Arc<dyn Store> = OnSimulated::open(&Simulated::holding(&damaged)).unwrap();
            check(&store, table, &twin, &log, &format!("{table:?} blank in the file")).await;
        }
    });
}

#[test]
fn l11_1_each_bit_of_a_receivers_record_in_the_journals_file() {
    each_bit(Table::Receiver);
}

#[test]
fn l11_1_each_bit_of_a_senders_record_in_the_journals_file() {
    each_bit(Table::Sender);
}

fn journal(path: &Path) -> Result<Arc<dyn Store>, OpenError> {
    let config = JournalConfig { segment_bytes: JournalConfig::SEGMENT_MIN, ..JournalConfig::default() };
    Ok(Arc::new(Journal::open(path, config)?))
}

/// The segments of a journal that is closed, and what they hold.
fn segments(path: &Path) -> Image {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let segments = entries.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.map(|path| (path.to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
}

/// On a disk, with every kind of damage that files there can have.
#[test]
fn l11_4_a_record_that_goes_bad_on_a_disk_and_files_that_go_missing() {
    watched(async |log| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        for table in [Table::Receiver, Table::Sender] {
            for damage in ["a bit", "zeros", "emptied", "cut", "another stream's"] {
                let _ = fs::remove_dir_all(&path);
                let store = journal(&path).unwrap();
                fill(&store).await;
                let records = read(&store).await;
                let place = place(table, VICTIM);
                let value = &records[&place];
                // What a journal is given, it gives back, whatever it is worth.
                let given = match damage {
                    "emptied" => Some(Bytes::new()),
                    "cut" => Some(value.slice(..value.len() / 2)),
                    "another stream's" => Some(records[&super::place(table, 1)].clone()),
                    _ => None,
                };
                if given.is_some() {
                    let write = crate::storage::Write { table, key: place.1.clone(), value: given.clone() };
                    store.commit(crate::storage::Batch { writes: vec![write] }).await.unwrap();
                }
                drop(store);
                if given.is_none() {
                    let image = segments(&path);
                    let (file, places) = located(&image, &place, value);
                    let mut bytes = image[&file].clone();
                    match damage {
                        "a bit" => bytes[places[100]] ^= 4,
                        _ => places.iter().for_each(|at| bytes[*at] = 0),
                    }
                    fs::write(&file, bytes).unwrap();
                }
                let twin = twin(&records, table).await;
                log.take();
                check(&journal(&path).unwrap(), table, &twin, &log, &format!("{table:?} {damage} on a disk")).await;
            }
        }
        // No record can be named of a segment that is gone or cut: the store is refused whole, and left as it was.
        for cut in [false, true] {
            let _ = fs::remove_dir_all(&path);
            let store = journal(&path).unwrap();
            fill(&store).await;
            drop(store);
            let image = segments(&path);
            for (file, bytes) in &image {
                if cut {
                    fs::write(file, &bytes[..bytes.len() - SECTOR]).unwrap();
                } else {
                    fs::remove_file(file).unwrap();
                }
            }
            assert!(matches!(journal(&path), Err(OpenError::Damaged { .. })), "cut: {cut}");
            image.iter().for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
            let store = journal(&path).unwrap();
            let process = Process::open(&store, (4, 4)).await;
            assert_eq!(receives(&process, VICTIM).await, as_ever(), "put back, it is what it was");
        }
    });
}
