//! Values that are there and are no record of their stream, each bit and each length, from an engine that injects them.

use super::*;
use crate::storage::{BadRecord, seal::SEAL_LEN};

/// What an engine may give back in a record's place.
enum Found {
    Value(Bytes),
    /// It says that it cannot.
    Unreadable(&'static str),
}

/// Every single way for the victim's record in `table` to be bad.
fn ways(records: &Records, table: Table) -> Vec<(String, Found)> {
    let whole = &records[&place(table, VICTIM)];
    let mut ways = Vec::new();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        ways.push((format!("bit {bit} flipped"), Found::Value(flipped.into())));
    }
    for length in 0..whole.len() {
        ways.push((format!("cut to {length} bytes"), Found::Value(whole.slice(..length))));
    }
    ways.push(("one byte longer".into(), Found::Value([whole, &b"\0"[..]].concat().into())));
    ways.push(("another stream's".into(), Found::Value(records[&place(table, 1)].clone())));
    let other = if table == Table::Receiver { Table::Sender } else { Table::Receiver };
    ways.push(("the same stream's of the other table".into(), Found::Value(records[&place(other, VICTIM)].clone())));
    let body = &whole[..whole.len() - SEAL_LEN];
    for (what, body) in invalid(body, table) {
        let kind = if table == Table::Receiver { "admit-one receiver record 1" } else { "admit-one lease record 1" };
        ways.push((format!("whole and {what}"), Found::Value(sealed(kind, &body))));
    }
    ways.push(("unreadable".into(), Found::Unreadable("a bad sector")));
    ways.push(("gone".into(), Found::Unreadable("missing though marked present")));
    ways
}

/// Bodies that a right checksum does not make a record.
fn invalid(body: &[u8], table: Table) -> Vec<(&'static str, Vec<u8>)> {
    let at = |place: usize, bytes: &[u8]| {
        let mut changed = body.to_vec();
        changed[place..place + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let fields = StreamKey::LEN;
    match table {
        // Introducer 3, expiry 8, admitted 8, incarnation 8, high 8, filled 4, one digest.
        Table::Receiver => vec![
            ("of no introducer", at(fields, &[3, 0, 0])),
            ("without its highest digest", at(fields + 35, &2_u32.to_be_bytes())),
            ("with a slot that has no digest", at(fields + 35, &3_u32.to_be_bytes())),
            ("with no slot filled", at(fields + 35, &0_u32.to_be_bytes())),
            ("with a slot below 0", {
                let mut changed = at(fields + 35, &5_u32.to_be_bytes());
                changed.extend_from_slice(&[7; 32]);
                changed
            }),
            ("with a digest too many", [body, &[7; 32]].concat()),
        ],
        // Incarnation 8, covered 8, count 1, five known incarnations.
        _ => vec![
            ("with six known incarnations", at(fields + 16, &[6])),
            ("with known incarnations out of order", {
                let mut changed = at(fields + 16, &[2]);
                changed[fields + 17..fields + 33].copy_from_slice(&[1_u64.to_be_bytes(), 2_u64.to_be_bytes()].concat());
                changed
            }),
            ("with a place in use past its count", at(fields + 17 + 32, &[1; 8])),
            ("with its own incarnation set aside", {
                let own = body[fields..fields + 8].to_vec();
                let mut changed = at(fields + 16, &[1]);
                changed[fields + 17..fields + 25].copy_from_slice(&own);
                changed
            }),
            ("a byte longer", [body, &b"\0"[..]].concat()),
        ],
    }
}

fn every_way(table: Table) {
    watched(async |log| {
        let filled = FaultStore::new();
        fill(&filled.arc()).await;
        let records = filled.records();
        let twin = twin(&records, table).await;
        log.take();
        let ways = ways(&records, table);
        // A receiver's record of one digest has 160 bytes, a sender's 146.
        assert!(ways.len() > 9 * 146, "{}", ways.len());
        for (way, found) in ways {
            let mut records = records.clone();
            let store = match found {
                Found::Value(value) => {
                    records.insert(place(table, VICTIM), value);
                    FaultStore::holding(records)
                }
                Found::Unreadable(reason) => {
                    records.remove(&place(table, VICTIM));
                    let store = FaultStore::holding(records);
                    store.add_bad(table, BadRecord { name: name(table, VICTIM), reason: reason.into() });
                    store
                }
            };
            check(&store.arc(), table, &twin, &log, &format!("{table:?} record {way}")).await;
        }
    });
}

#[test]
fn l11_2_every_way_in_which_a_receivers_record_is_bad_is_its_streams_alone() {
    every_way(Table::Receiver);
}

#[test]
fn l11_2_every_way_in_which_a_senders_record_is_bad_is_its_streams_alone() {
    every_way(Table::Sender);
}

/// The check itself sees a record that is whole.
#[test]
#[should_panic(expected = "no fault")]
fn a_record_that_is_whole_is_no_bad_one() {
    watched(async |log| {
        let filled = FaultStore::new();
        fill(&filled.arc()).await;
        let twin = twin(&filled.records(), Table::Receiver).await;
        check(&filled.arc(), Table::Receiver, &twin, &log, "no fault").await;
    });
}

/// Bad records of both tables count together, against either bound, one place each.
#[tokio::test]
async fn l11_2_each_bad_record_takes_one_place_of_both_bounds() {
    let filled = FaultStore::new();
    fill(&filled.arc()).await;
    for bad in 0..=4_u8 {
        let store = FaultStore::holding(filled.records());
        for number in 0..bad {
            let table = if number % 2 == 0 { Table::Sender } else { Table::Receiver };
            store.add_bad(table, BadRecord { name: name(table, 100 + number), reason: "a bad sector".into() });
        }
        let process = Process::open(&store.arc(), (3 + 4, 3 + 4)).await;
        let (mut received, mut sent) = (0, 0);
        for origin in 10..20 {
            received += u8::from(process.admit(request(origin, 1, 1)).await.is_ok());
            sent += u8::from(process.reserve(origin).await.is_ok());
        }
        assert_eq!((received, sent), (4 - bad, 4 - bad), "{bad} bad records");
    }
}
