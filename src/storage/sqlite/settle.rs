//! What can be trusted of what was read from a database: all of it, all but some records by name, or nothing. Pure.
//!
//! | the database's last batch | the witness's | then |
//! | --- | --- | --- |
//! | one after | readable | the last batch was not released, and is whole: it counts |
//! | the same | readable | what both say presences add up to must be the same |
//! | unreadable | readable | the witness's sum counts |
//! | any other | readable | refused: a released batch is lost, or the two are of different databases |
//! | any | unreadable | refused: a lost batch could not be seen |
//!
//! With the sum known: presences that add up to it name every record, and a record counts if it is whole and of the
//! checksum that its presence repeats; else it is bad, by name. Presences that do not add up, or cannot all be read, are
//! made again from the whole records, if these add up to it. Else the store is refused.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::row::{Presence, Record, Seal, Standing, Sum, toggle};
use crate::storage::RecordName;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The database's own standing, if its row is readable.
    pub(super) standing: Option<Standing>,
    /// Every presence that could be read.
    pub(super) presences: Vec<Presence>,
    /// Why there may be more presences.
    pub(super) broken: Option<String>,
    /// Every row that is whole in itself.
    pub(super) records: Vec<Record>,
    /// Why the row of an id is not.
    pub(super) faults: BTreeMap<i64, String>,
}

/// What counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The number of the last batch.
    pub(super) batch: u64,
    pub(super) records: Vec<Record>,
    /// The records that are there and cannot be read: the checksum that they should have, and the reason.
    pub(super) bad: BTreeMap<RecordName, (Seal, String)>,
}

/// Settles what counts, or says why nothing does.
pub(super) fn settle(found: Found, witness: Option<Standing>) -> Result<Settled, String> {
    let witness = witness.ok_or("its witness is damaged or missing, so that a lost batch could not be seen")?;
    let (batch, sum) = match &found.standing {
        None => (witness.batch, witness.sum),
        Some(own) if own.database != witness.database => return Err("its witness is another database's".to_owned()),
        Some(own) if own.batch == witness.batch && own.sum == witness.sum => (own.batch, own.sum),
        Some(own) if Some(own.batch) == witness.batch.checked_add(1) => (own.batch, own.sum),
        Some(own) if own.batch < witness.batch => {
            return Err(format!(
                "batch {} was released and the database ends with batch {}: its write-ahead log is damaged or missing",
                witness.batch, own.batch
            ));
        }
        Some(own) => return Err(format!("it stands at batch {} and its witness at {}", own.batch, witness.batch)),
    };
    if found.broken.is_none() && total(found.presences.iter().map(|of| (&of.name, &of.seal))) == sum {
        return Ok(by_presence(found, batch));
    }
    let records: BTreeMap<_, _> = found.records.into_iter().map(|record| (record.name, record)).collect();
    if total(records.values().map(|record| (&record.name, &record.seal))) == sum {
        return Ok(Settled { batch, records: records.into_values().collect(), bad: BTreeMap::new() });
    }
    Err(found.broken.unwrap_or_else(|| "its records are not those of its last batch".to_owned()))
}

fn by_presence(found: Found, batch: u64) -> Settled {
    let mut whole: HashMap<(RecordName, Seal), Record> =
        found.records.into_iter().map(|record| ((record.name, record.seal), record)).collect();
    let names: HashSet<_> = whole.keys().map(|(name, _)| *name).collect();
    let mut settled = Settled { batch, ..Settled::default() };
    for Presence { id, name, seal, reason } in found.presences {
        match (whole.remove(&(name, seal)), reason) {
            // Once it was unreadable, it stays so until it is written anew.
            (_, Some(reason)) => drop(settled.bad.insert(name, (seal, reason))),
            (Some(record), None) => settled.records.push(record),
            (None, None) => {
                let reason = match found.faults.get(&id) {
                    Some(fault) => fault.clone(),
                    None if names.contains(&name) => "its content is an older one".to_owned(),
                    None => "it is missing though marked present".to_owned(),
                };
                settled.bad.insert(name, (seal, reason));
            }
        }
    }
    settled
}

fn total<'a>(presences: impl Iterator<Item = (&'a RecordName, &'a Seal)>) -> Sum {
    let mut sum = Sum::default();
    presences.for_each(|(name, seal)| toggle(&mut sum, name, seal));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Table;

    /// A whole database of `count` records after batch 7.
    fn whole(count: u8) -> (Found, Standing) {
        let records: Vec<_> =
            (0..count).map(|key| Record::new(Table::Receiver, vec![key].into(), vec![key; 20].into())).collect();
        let presences: Vec<_> = (1..)
            .zip(&records)
            .map(|(id, record)| Presence { id, name: record.name, seal: record.seal, reason: None })
            .collect();
        let sum = total(records.iter().map(|record| (&record.name, &record.seal)));
        let standing = Standing { database: 3, batch: 7, sum };
        (Found { standing: Some(standing), presences, records, ..Found::default() }, standing)
    }

    #[test]
    fn the_table_of_standings_holds_in_every_row() {
        let before = |standing: Standing, by| Standing { batch: standing.batch - by, sum: [9; 32], ..standing };
        let (found, standing) = whole(3);
        assert_eq!(settle(found, Some(standing)).expect("the same").batch, 7);
        let (found, standing) = whole(3);
        assert_eq!(settle(found, Some(before(standing, 1))).expect("not released").records.len(), 3);
        let (found, standing) = whole(3);
        settle(found, Some(before(standing, 2))).expect_err("two ahead");
        let (found, standing) = whole(3);
        let error = settle(found, Some(Standing { batch: 8, ..standing })).expect_err("lost");
        assert!(error.contains("batch 8 was released"), "{error}");
        let (found, standing) = whole(3);
        settle(found, Some(Standing { sum: [9; 32], ..standing })).expect_err("other presences");
        let (found, standing) = whole(3);
        settle(found, Some(Standing { database: 4, ..standing })).expect_err("another database");
        let (mut found, standing) = whole(3);
        found.standing = None;
        assert_eq!(settle(found, Some(standing)).expect("by the witness").records.len(), 3);
        settle(whole(3).0, None).expect_err("no witness");
    }

    #[test]
    fn l11_4_what_is_missing_stale_or_faulty_is_bad_by_name_and_nothing_else() {
        let (mut found, standing) = whole(5);
        let stale = Record::new(Table::Receiver, vec![1].into(), "older".into());
        let names: Vec<_> = found.records.iter().map(|record| record.name).collect();
        found.records[1] = stale;
        found.records.remove(4);
        found.records.remove(2);
        found.faults.insert(3, "torn".to_owned());
        found.presences[0].reason = Some("since long".to_owned());
        let settled = settle(found, Some(standing)).expect("confined");
        assert_eq!(settled.records.iter().map(|record| record.name).collect::<Vec<_>>(), [names[3]]);
        let reasons: Vec<_> = [0, 1, 2, 4].map(|at: usize| settled.bad[&names[at]].1.as_str()).into();
        let expected = ["since long", "its content is an older one", "torn", "it is missing though marked present"];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn presences_are_made_again_from_records_that_add_up_and_from_no_others() {
        for broken in [None, Some("cut short".to_owned())] {
            let (mut found, standing) = whole(4);
            found.presences.pop();
            found.broken = broken.clone();
            assert_eq!(settle(found, Some(standing)).expect("made again").records.len(), 4);
            let (mut found, standing) = whole(4);
            found.presences.pop();
            found.records.pop();
            found.broken = broken;
            settle(found, Some(standing)).expect_err("a record was lost without a name");
        }
    }
}
