//! What the files of a store are called: pure.
//!
//! A record's file, its presence marker and its unfinished file are its name (`receiver-<64 hex digits>`) with an ending.
//! Only exactly that spelling is the record's; the same in another letter case is kept apart, since a file system may
//! hold both or take one for the other.

use crate::storage::RecordName;

/// The file that is locked.
pub(super) const LOCK: &str = "lock";
/// The file that says whose directory it is.
pub(super) const STORE: &str = "store";
/// That file before it is flushed.
pub(super) const STORE_UNFINISHED: &str = "store.tmp";

const RECORD: &str = ".record";
const MARKER: &str = ".present";
const UNFINISHED: &str = ".tmp";

/// What a file of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The lock, or the file that says whose directory it is.
    Own,
    /// A record.
    Record(RecordName),
    /// The marker that a record is there.
    Marker(RecordName),
    /// What a crash left of a file that never got its name.
    Unfinished,
    /// A record or marker but for the letter case of its name.
    OtherCase(RecordName),
    /// Nothing of this engine.
    Foreign,
}

pub(super) fn record(name: &RecordName) -> String {
    format!("{name}{RECORD}")
}

pub(super) fn marker(name: &RecordName) -> String {
    format!("{name}{MARKER}")
}

pub(super) fn unfinished(name: &RecordName) -> String {
    format!("{name}{UNFINISHED}")
}

pub(super) fn kind(file: &str) -> Kind {
    if file == LOCK || file == STORE {
        return Kind::Own;
    }
    if file == STORE_UNFINISHED {
        return Kind::Unfinished;
    }
    let named = |text: &str, ending: &str| text.strip_suffix(ending)?.parse().ok();
    if let Some(name) = named(file, RECORD) {
        return Kind::Record(name);
    }
    if let Some(name) = named(file, MARKER) {
        return Kind::Marker(name);
    }
    if named(file, UNFINISHED).is_some() {
        return Kind::Unfinished;
    }
    let lower = file.to_ascii_lowercase();
    match named(&lower, RECORD).or_else(|| named(&lower, MARKER)) {
        Some(name) => Kind::OtherCase(name),
        None => Kind::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Table;

    #[test]
    fn every_file_is_told_by_its_name_and_another_letter_case_is_never_a_records() {
        for table in Table::ALL {
            let name = RecordName::of(table, b"key");
            assert_eq!(kind(&record(&name)), Kind::Record(name));
            assert_eq!(kind(&marker(&name)), Kind::Marker(name));
            assert_eq!(kind(&unfinished(&name)), Kind::Unfinished);
            for other in
                [record(&name).to_uppercase(), marker(&name).replacen(table.name(), &table.name().to_uppercase(), 1)]
            {
                assert_eq!(kind(&other), Kind::OtherCase(name));
            }
        }
        assert_eq!([kind(LOCK), kind(STORE), kind(STORE_UNFINISHED)], [Kind::Own, Kind::Own, Kind::Unfinished]);
        for foreign in ["", "lost+found", "records", "Lock", "receiver-00.record", ".record", "x.tmp"] {
            assert_eq!(kind(foreign), Kind::Foreign, "{foreign}");
        }
    }
}
