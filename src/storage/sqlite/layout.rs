//! The names in a store's directory.

/// Whoever holds the lock on it owns the store.
pub(super) const LOCK: &str = "lock";
/// A database that is being written and has no number yet.
pub(super) const FRESH: &str = "fresh.sqlite";
/// What SQLite may put beside a database.
pub(super) const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What a name in the directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The database of that number.
    Database(u64),
    /// What SQLite put beside the database of that number.
    Beside(u64),
    /// The witness of the database of that number.
    Witness(u64),
    /// A database that never got its number, or what is beside it.
    Fresh,
    /// The lock, or what a fresh file system brings along.
    Expected,
    /// Anything else.
    Foreign,
}

pub(super) fn database(number: u64) -> String {
    format!("records-{number:020}.sqlite")
}

pub(super) fn witness(number: u64) -> String {
    format!("records-{number:020}.witness")
}

pub(super) fn kind(name: &str) -> Kind {
    if name == LOCK || name == "lost+found" {
        return Kind::Expected;
    }
    if let Some(beside) = name.strip_prefix(FRESH)
        && (beside.is_empty() || BESIDE.contains(&beside))
    {
        return Kind::Fresh;
    }
    numbered(name).unwrap_or(Kind::Foreign)
}

fn numbered(name: &str) -> Option<Kind> {
    let (number, ending) = name.strip_prefix("records-")?.split_once('.')?;
    if number.len() != 20 || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number = number.parse().ok()?;
    match ending {
        "sqlite" => Some(Kind::Database(number)),
        "witness" => Some(Kind::Witness(number)),
        _ => BESIDE.contains(&ending.strip_prefix("sqlite")?).then_some(Kind::Beside(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_by_what_made_it() {
        for number in [0, 1, 42, u64::MAX] {
            assert_eq!(kind(&database(number)), Kind::Database(number));
            assert_eq!(kind(&witness(number)), Kind::Witness(number));
            assert!(BESIDE.iter().all(|end| kind(&(database(number) + end)) == Kind::Beside(number)));
        }
        assert_eq!((kind(FRESH), kind("fresh.sqlite-wal"), kind(LOCK)), (Kind::Fresh, Kind::Fresh, Kind::Expected));
        for foreign in ["", "records-1.sqlite", "records-00000000000000000001.db", "fresh.sqlite-old", "app.sqlite"] {
            assert_eq!(kind(foreign), Kind::Foreign, "{foreign}");
        }
    }
}
