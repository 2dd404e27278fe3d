//! One signed call, immutable, and what it is committed to by.

use std::fmt;

use super::wire::{Reader, WireError, check_instant, check_text, put_instant, put_optional, put_text};
use crate::identity::Did;

/// The longest tenant, in bytes of UTF-8.
pub const TENANT_MAX: usize = 128;

/// The longest request id, in bytes of UTF-8.
pub const REQUEST_ID_MAX: usize = 128;

/// The longest method, in bytes of UTF-8.
pub const METHOD_MAX: usize = 256;

/// The longest intent, in bytes of UTF-8.
pub const INTENT_MAX: usize = 256;

const MARKER: [u8; 4] = *b"A1CA";
const COMMITMENT_CONTEXT: &str = "admit-one call commitment";
const ARGUMENTS_CONTEXT: &str = "admit-one call arguments";

/// What is asked for: the immutable request, which a retry repeats and no credential changes (law L12.4).
///
/// Its identity as an operation is (tenant, request id). Everything else of it, with the subject, is in its
/// [`Commitment`], so that another call under the same identity is a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// On whose behalf the request id is unique: at most [`TENANT_MAX`] bytes, not empty. A tenant belongs to one store;
    /// two stores that serve one tenant would each run its calls.
    pub tenant: String,
    /// The name of the request, chosen by who first asks, and the same at each retry: at most [`REQUEST_ID_MAX`] bytes,
    /// not empty.
    pub request_id: String,
    /// What is called: at most [`METHOD_MAX`] bytes, not empty.
    pub method: String,
    /// [`Call::hash_arguments`] of the bytes of the arguments, as they were received.
    pub arguments: [u8; 32],
    /// What was approved, where a call needs approval (law L12.3): at most [`INTENT_MAX`] bytes, not empty.
    pub intent: Option<String>,
    /// When it was first asked for, in unix seconds, 0 to [`INSTANT_MAX`](super::INSTANT_MAX).
    pub issued_at: Option<i64>,
    /// The first instant at which it may no longer run, in unix seconds, 0 to [`INSTANT_MAX`](super::INSTANT_MAX). An operation and an
    /// approval need one.
    pub deadline: Option<i64>,
}

/// A hash over a call and its subject: what makes a retry exact (law L12.4). It covers no credential, so that a retry
/// under fresh ones stays exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Commitment(pub [u8; 32]);

impl Call {
    /// The most bytes of an encoded call.
    pub const ENCODED_MAX: usize = MARKER.len()
        + (4 + TENANT_MAX)
        + (4 + REQUEST_ID_MAX)
        + (4 + METHOD_MAX)
        + 32
        + (1 + 4 + INTENT_MAX)
        + (1 + 8)
        + (1 + 8);

    /// Hashes the bytes of a call's arguments, domain-separated. Bytes that mean the same and are written otherwise are
    /// other arguments.
    pub fn hash_arguments(arguments: &[u8]) -> [u8; 32] {
        *blake3::Hasher::new_derive_key(ARGUMENTS_CONTEXT).update(arguments).finalize().as_bytes()
    }

    /// Says whether every field is within its bound.
    ///
    /// # Errors
    /// [`WireError`] naming the first field that is not.
    pub fn check(&self) -> Result<(), WireError> {
        check_text(&self.tenant, "tenant", TENANT_MAX)?;
        check_text(&self.request_id, "request id", REQUEST_ID_MAX)?;
        check_text(&self.method, "method", METHOD_MAX)?;
        if let Some(intent) = &self.intent {
            check_text(intent, "intent", INTENT_MAX)?;
        }
        if let Some(issued_at) = self.issued_at {
            check_instant(issued_at, "issued-at")?;
        }
        self.deadline.map_or(Ok(()), |deadline| check_instant(deadline, "deadline"))
    }

    /// Encodes the call: marker, tenant, request id, method, arguments' hash 32, then intent, issued-at and deadline, each
    /// behind one byte that says whether it is there.
    ///
    /// # Errors
    /// [`WireError`] where a field is over its bound.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        self.check()?;
        Ok(self.written())
    }

    /// Decodes a whole call. Total: any bytes give a call within its bounds, or an error.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, "call", MARKER, Self::ENCODED_MAX)?;
        let call = Self {
            tenant: reader.text("tenant", TENANT_MAX)?,
            request_id: reader.text("request id", REQUEST_ID_MAX)?,
            method: reader.text("method", METHOD_MAX)?,
            arguments: reader.array("arguments' hash")?,
            intent: reader.optional("intent", |reader| reader.text("intent", INTENT_MAX))?,
            issued_at: reader.optional("issued-at", |reader| reader.instant("issued-at"))?,
            deadline: reader.optional("deadline", |reader| reader.instant("deadline"))?,
        };
        reader.end()?;
        Ok(call)
    }

    /// The encoding, of a call within its bounds.
    fn written(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::ENCODED_MAX);
        out.extend_from_slice(&MARKER);
        put_text(&mut out, &self.tenant);
        put_text(&mut out, &self.request_id);
        put_text(&mut out, &self.method);
        out.extend_from_slice(&self.arguments);
        put_optional(&mut out, self.intent.as_deref(), put_text);
        put_optional(&mut out, self.issued_at.as_ref(), put_instant);
        put_optional(&mut out, self.deadline.as_ref(), put_instant);
        out
    }
}

impl Commitment {
    /// Of `call`, asked for by `subject`.
    pub fn of(call: &Call, subject: &Did) -> Self {
        let hash = blake3::Hasher::new_derive_key(COMMITMENT_CONTEXT)
            .update(subject.as_bytes())
            .update(&call.written())
            .finalize();
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commitment({self})")
    }
}

/// The fuzz target of a call.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "call",
    run: |data| {
        let Ok(call) = Call::decode(data) else { return false };
        assert!(data.len() <= Call::ENCODED_MAX);
        assert_eq!(call.check(), Ok(()));
        assert_eq!(call.encode().as_deref(), Ok(data), "a call has two encodings");
        true
    },
    seeds: || fuzzing::calls().into_iter().flat_map(|call| call.encode()).collect(),
};

#[cfg(any(test, fuzzing))]
pub(in crate::layer) mod fuzzing {
    use super::*;

    pub(in crate::layer) fn calls() -> [Call; 2] {
        let least = Call {
            tenant: "acme".into(),
            request_id: "review-1".into(),
            method: "notes/append".into(),
            arguments: Call::hash_arguments(b"a note"),
            intent: None,
            issued_at: None,
            deadline: None,
        };
        let intent = Some("append one note".into());
        let full = Call { intent, issued_at: Some(1_700_000_000), deadline: Some(1_700_000_600), ..least.clone() };
        [least, full]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{identity::KeySigner, layer::single_use::INSTANT_MAX};

    fn did(seed: u8) -> Did {
        KeySigner::from_secret(&[seed; 32]).unwrap().key()
    }

    fn call() -> Call {
        Call {
            tenant: "acme".into(),
            request_id: "review-1".into(),
            method: "notes/append".into(),
            arguments: Call::hash_arguments(b"a note"),
            intent: Some("append one note".into()),
            issued_at: Some(1_700_000_000),
            deadline: Some(1_700_000_600),
        }
    }

    fn text(bound: usize) -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{1,8}", Just("x".repeat(bound)), Just("é".repeat(bound / 2))]
    }

    prop_compose! {
        fn any_call()(
            (tenant, request_id) in (text(TENANT_MAX), text(REQUEST_ID_MAX)),
            method in text(METHOD_MAX),
            arguments: [u8; 32],
            intent in prop::option::of(text(INTENT_MAX)),
            issued_at in prop::option::of(0..=INSTANT_MAX),
            deadline in prop::option::of(0..=INSTANT_MAX),
        ) -> Call {
            Call { tenant, request_id, method, arguments, intent, issued_at, deadline }
        }
    }

    #[test]
    fn a_call_is_written_as_it_always_was() {
        let (hex, texts) = (hex::encode(call().encode().unwrap()), |text: &str| hex::encode(text));
        let expected = [
            "41314341".to_owned(),
            ["00000004", &texts("acme")].concat(),
            ["00000008", &texts("review-1")].concat(),
            ["0000000c", &texts("notes/append")].concat(),
            hex::encode(Call::hash_arguments(b"a note")),
            ["010000000f", &texts("append one note")].concat(),
            "01000000006553f100".to_owned(),
            "01000000006553f358".to_owned(),
        ];
        assert_eq!(hex, expected.concat());
        assert_eq!(call().encode().unwrap().len(), 4 + 8 + 12 + 16 + 32 + 20 + 9 + 9);
    }

    #[test]
    fn l12_4_the_commitment_covers_every_field_and_the_subject_and_nothing_else() {
        let base = Commitment::of(&call(), &did(1));
        assert_eq!(base, Commitment::of(&call(), &did(1)));
        let changed = [
            Call { tenant: "acm".into(), request_id: "ereview-1".into(), ..call() },
            Call { request_id: "review-2".into(), ..call() },
            Call { method: "notes/remove".into(), ..call() },
            Call { arguments: Call::hash_arguments(b"a motet"), ..call() },
            Call { intent: None, ..call() },
            Call { intent: Some("append two notes".into()), ..call() },
            Call { issued_at: None, ..call() },
            Call { issued_at: Some(1_700_000_001), ..call() },
            Call { deadline: None, ..call() },
            Call { deadline: Some(1_700_000_601), ..call() },
            Call { issued_at: None, deadline: Some(1_700_000_000), ..call() },
        ];
        let mut seen = vec![base, Commitment::of(&call(), &did(2))];
        seen.extend(changed.iter().map(|call| Commitment::of(call, &did(1))));
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len());
    }

    #[test]
    fn each_bound_is_reached_and_one_past_it_is_refused_by_name() {
        let greatest = Call {
            tenant: "t".repeat(TENANT_MAX),
            request_id: "r".repeat(REQUEST_ID_MAX),
            method: "m".repeat(METHOD_MAX),
            intent: Some("i".repeat(INTENT_MAX)),
            issued_at: Some(0),
            deadline: Some(INSTANT_MAX),
            ..call()
        };
        let bytes = greatest.encode().unwrap();
        assert_eq!(bytes.len(), Call::ENCODED_MAX);
        assert_eq!(Call::decode(&bytes), Ok(greatest.clone()));
        let too_long = |field, bound: usize| WireError::TooLong { field, length: bound + 1, bound };
        let refused = [
            (Call { tenant: "t".repeat(TENANT_MAX + 1), ..call() }, too_long("tenant", TENANT_MAX)),
            (Call { request_id: "r".repeat(REQUEST_ID_MAX + 1), ..call() }, too_long("request id", REQUEST_ID_MAX)),
            (Call { method: "m".repeat(METHOD_MAX + 1), ..call() }, too_long("method", METHOD_MAX)),
            (Call { intent: Some("i".repeat(INTENT_MAX + 1)), ..call() }, too_long("intent", INTENT_MAX)),
            (Call { tenant: String::new(), ..call() }, WireError::Empty { field: "tenant" }),
            (Call { request_id: String::new(), ..call() }, WireError::Empty { field: "request id" }),
            (Call { method: String::new(), ..call() }, WireError::Empty { field: "method" }),
            (Call { intent: Some(String::new()), ..call() }, WireError::Empty { field: "intent" }),
            (Call { issued_at: Some(-1), ..call() }, WireError::Instant { field: "issued-at", instant: -1 }),
            (
                Call { deadline: Some(INSTANT_MAX + 1), ..call() },
                WireError::Instant { field: "deadline", instant: INSTANT_MAX + 1 },
            ),
        ];
        for (call, error) in refused {
            assert_eq!(call.encode(), Err(error));
            assert_eq!(Call::decode(&call.written()), Err(error));
        }
        let mut longer = bytes;
        longer.push(0);
        let oversize = WireError::Oversize { what: "call", length: Call::ENCODED_MAX + 1, bound: Call::ENCODED_MAX };
        assert_eq!(Call::decode(&longer), Err(oversize));
    }

    proptest! {
        #[test]
        fn a_call_decodes_to_itself_and_no_part_or_longer_one_does(call in any_call(), cut: prop::sample::Index) {
            let bytes = call.encode().unwrap();
            prop_assert!(bytes.len() <= Call::ENCODED_MAX);
            prop_assert_eq!(Call::decode(&bytes), Ok(call));
            prop_assert!(Call::decode(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert!(Call::decode(&[&bytes[..], &[0]].concat()).is_err());
        }

        /// Whatever decodes is written as it was read: there is one encoding of each call.
        #[test]
        fn any_bytes_give_an_error_or_a_call_that_is_written_as_it_was_read(
            call in any_call(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            noise in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = call.encode().unwrap();
            for (place, byte) in flips {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            for bytes in [bytes, [&MARKER[..], &noise].concat(), noise] {
                if let Ok(call) = Call::decode(&bytes) {
                    prop_assert_eq!(call.encode(), Ok(bytes));
                }
            }
        }
    }
}
