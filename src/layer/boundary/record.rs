//! The record of a receiver stream (law L9.1).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    clock::WallMs,
    layer::{
        charging::Introducer,
        window::{WINDOW_SLOTS, Window},
    },
    message::{Incarnation, StreamKey, TransactionDigest},
    storage::{
        VALUE_MAX,
        seal::{SEAL_LEN, seal, unseal},
    },
};

const KIND: &str = "admit-one receiver record 1";

/// A tag 1, and a slot's number 2 (0 for what is no slot).
const INTRODUCER: usize = 3;

const FIXED: usize = StreamKey::LEN + INTRODUCER + 8 + 8 + 8 + 8 + 4;

/// The most bytes of a receiver stream's record: key 73, introducer 3, greatest expiry 8, greatest instant 8, incarnation 8, high 8,
/// filled slots 4, a digest 32 for each of 32 slots, checksum 16.
pub const STREAM_RECORD_MAX: usize = FIXED + 32 * WINDOW_SLOTS as usize + SEAL_LEN;

const _: () = assert!(STREAM_RECORD_MAX <= 1_200 && STREAM_RECORD_MAX <= VALUE_MAX);

/// What is durable of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamRecord {
    /// Who it is charged to (law L10.4).
    pub(super) introducer: Introducer,
    /// The greatest issued + ttl that it ever admitted.
    pub(super) expiry: WallMs,
    /// The greatest wall instant at which it admitted anything.
    pub(super) admitted: WallMs,
    /// What it admitted.
    pub(super) window: Window,
}

impl StreamRecord {
    /// The record's bytes, under `key`.
    pub(super) fn encode(&self, key: &StreamKey) -> Bytes {
        let mut out = BytesMut::with_capacity(STREAM_RECORD_MAX);
        out.put_slice(&key.to_bytes());
        let (tag, slot) = match self.introducer {
            Introducer::Slot(slot) => (0, slot),
            Introducer::Inbox => (1, 0),
            Introducer::Own => (2, 0),
        };
        out.put_u8(tag);
        out.put_u16(slot);
        out.put_u64(self.expiry);
        out.put_u64(self.admitted);
        out.put_u64(self.window.incarnation().0);
        out.put_u64(self.window.high());
        out.put_u32(self.window.filled());
        self.window.digests().for_each(|digest| out.put_slice(&digest.0));
        seal(KIND, out)
    }

    /// Reads the record filed under `filed`, after the one of `last`.
    ///
    /// # Errors
    /// Why it cannot be restored, for the log (law L11.1).
    pub(super) fn decode_after(
        filed: &[u8],
        bytes: &[u8],
        last: Option<&StreamKey>,
    ) -> Result<(StreamKey, Self), &'static str> {
        let record = unseal(KIND, bytes).ok_or("its checksum does not hold")?;
        let (key, mut record) = record.split_at_checked(StreamKey::LEN).ok_or("it is too short")?;
        if key != filed {
            return Err("it is filed under another stream's key");
        }
        let key = StreamKey::from_bytes_after(key, last).ok_or("its key is no stream's")?;
        let introducer = decode_introducer(&mut record).ok_or("it names no introducer")?;
        Ok((key, Self::decode_body(introducer, &mut record).ok_or("it holds no valid window")?))
    }

    /// The same, for one alone.
    #[cfg(test)]
    pub(super) fn decode(filed: &[u8], bytes: &[u8]) -> Result<(StreamKey, Self), &'static str> {
        Self::decode_after(filed, bytes, None)
    }

    fn decode_body(introducer: Introducer, record: &mut &[u8]) -> Option<Self> {
        let expiry = record.try_get_u64().ok()?;
        let admitted = record.try_get_u64().ok()?;
        let incarnation = Incarnation(record.try_get_u64().ok()?);
        let high = record.try_get_u64().ok()?;
        let filled = record.try_get_u32().ok()?;
        let (digests, rest) = record.as_chunks::<32>();
        let digests = digests.iter().map(|digest| TransactionDigest(*digest));
        let window = Window::from_parts(incarnation, high, filled, digests)?;
        rest.is_empty().then_some(Self { introducer, expiry, admitted, window })
    }
}

fn decode_introducer(record: &mut &[u8]) -> Option<Introducer> {
    match (record.try_get_u8().ok()?, record.try_get_u16().ok()?) {
        (0, slot) => Some(Introducer::Slot(slot)),
        (1, 0) => Some(Introducer::Inbox),
        (2, 0) => Some(Introducer::Own),
        _ => None,
    }
}

/// The fuzz target of a receiver stream's record.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "stream_record",
    run: |data| {
        let filed = data.get(..StreamKey::LEN).unwrap_or(&[]);
        crate::storage::seal::fuzz(
            KIND,
            true,
            data,
            |bytes| {
                let (key, record) = StreamRecord::decode_after(filed, bytes, None).ok()?;
                assert_eq!(key.to_bytes(), filed);
                assert!(bytes.len() <= STREAM_RECORD_MAX, "a record is over its bound");
                assert!(StreamRecord::decode_after(&[&[!filed[0]], &filed[1..]].concat(), bytes, None).is_err());
                // What its window holds is refused, whatever the rest of it says.
                let (window, high) = (&record.window, record.window.high());
                let kept = window.digests().next().copied().unwrap_or(TransactionDigest([0; 32]));
                let again = crate::layer::window::observe(Some(window), window.incarnation(), high, kept);
                assert_eq!(again.err(), Some(crate::layer::window::WindowRefusal::Replay));
                Some((key, record))
            },
            |(key, record)| record.encode(key),
        )
    },
    seeds: || {
        let did = |seed| crate::identity::KeySigner::fuzzing(seed).key();
        let (network, class) = (crate::message::NetworkId(7), crate::message::Class::E2e);
        let key = StreamKey { network, origin: did(1), destination: did(2), class };
        let record = |introducer, high: u64, filled: u32| {
            let digests = (0..filled.count_ones()).map(|at| TransactionDigest([at as u8; 32]));
            let window = Window::from_parts(Incarnation(9), high, filled, digests)?;
            Some(StreamRecord { introducer, expiry: 2_000, admitted: 1_000, window }.encode(&key).to_vec())
        };
        let records = [
            record(Introducer::Slot(3), 0, 1),
            record(Introducer::Inbox, 40, 0b1011),
            record(Introducer::Own, 100, u32::MAX),
        ];
        records.into_iter().flatten().collect()
    },
};
