//! How calls and credentials are written: the pieces that their encodings share.
//!
//! Every encoding begins with a marker of four bytes that names what it is; integers are big-endian, an instant is the
//! eight bytes of an `i64` of unix seconds, a text is a length of four bytes and UTF-8, and what may be missing has one
//! byte before it, 0 or 1. There is one way to write each value, and nothing may follow it. Reading is total: any bytes
//! give a value or a [`WireError`], and nothing is allocated before its length is known to be within its bound.

use crate::identity::{Delegation, DelegationError, Did, DidError, Proof, Signature, Slot};

/// The greatest instant that a call or a credential may name, in unix seconds: the end of the year 9999. The least is 0.
pub const INSTANT_MAX: i64 = 253_402_300_799;

const OWN: u8 = 0;
const INLINE: u8 = 1;

/// The most bytes that a proof has where a delegation is carried inline.
pub(in crate::layer) const PROOF_MAX: usize = 1 + Delegation::LEN + Signature::LEN;

/// Why bytes are no call and no credential. Nothing was kept of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes do not begin with the marker of what they should be.
    #[error("the bytes do not begin with the marker of a {what}")]
    WrongMarker {
        /// What they should be.
        what: &'static str,
    },
    /// More bytes than any of its kind has.
    #[error("{length} bytes are over the bound of {bound} of a {what}")]
    Oversize {
        /// What they should be.
        what: &'static str,
        /// How many there are.
        length: usize,
        /// How many there may be.
        bound: usize,
    },
    /// The bytes end inside a field.
    #[error("the bytes end inside the {field}")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{count} bytes follow the last field")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// A tag that the format does not have.
    #[error("no {field} has tag {tag}")]
    UnknownTag {
        /// The field.
        field: &'static str,
        /// The tag.
        tag: u8,
    },
    /// A text is over its bound.
    #[error("a {field} of {length} bytes is over the bound of {bound}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The bound in bytes.
        bound: usize,
    },
    /// A text that must say something is empty.
    #[error("the {field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text is not UTF-8.
    #[error("the {field} is not UTF-8")]
    NotText {
        /// The field.
        field: &'static str,
    },
    /// An instant before 1970 or after the year 9999.
    #[error("the {field} is {instant}, outside of 0 to {INSTANT_MAX}")]
    Instant {
        /// The field.
        field: &'static str,
        /// What it says, in unix seconds.
        instant: i64,
    },
    /// It ends before it begins.
    #[error("it ends at {end}, not after {begin}")]
    Reversed {
        /// Its first instant, in unix seconds.
        begin: i64,
        /// Its last, in unix seconds.
        end: i64,
    },
    /// A key is refused.
    #[error("the {field} is refused: {reason}")]
    Key {
        /// The field.
        field: &'static str,
        /// Why.
        reason: DidError,
    },
    /// A proof refers to a delegation that it does not carry.
    #[error("the {field} refers to a delegation that it does not carry")]
    Reference {
        /// The field.
        field: &'static str,
    },
}

/// Reads fields off the head of bytes.
pub(in crate::layer) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Of a `what`, which begins with `marker` and has at most `bound` bytes.
    pub(in crate::layer) fn new(
        bytes: &'a [u8],
        what: &'static str,
        marker: [u8; 4],
        bound: usize,
    ) -> Result<Self, WireError> {
        if bytes.len() > bound {
            return Err(WireError::Oversize { what, length: bytes.len(), bound });
        }
        match bytes.strip_prefix(&marker) {
            Some(rest) => Ok(Self { rest }),
            None => Err(WireError::WrongMarker { what }),
        }
    }

    /// Says that this is all.
    pub(in crate::layer) const fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes { count }),
        }
    }

    pub(in crate::layer) fn slice(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(head)
    }

    pub(in crate::layer) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated { field })?;
        self.rest = rest;
        Ok(*head)
    }

    /// The length of what follows.
    pub(in crate::layer) fn length(&mut self, field: &'static str) -> Result<usize, WireError> {
        usize::try_from(u32::from_be_bytes(self.array(field)?)).map_err(|_| WireError::Truncated { field })
    }

    /// Bytes behind their length.
    pub(in crate::layer) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let length = self.length(field)?;
        self.slice(length, field)
    }

    pub(in crate::layer) fn text(&mut self, field: &'static str, bound: usize) -> Result<String, WireError> {
        let length = self.length(field)?;
        if length > bound {
            return Err(WireError::TooLong { field, length, bound });
        }
        let text = std::str::from_utf8(self.slice(length, field)?).map_err(|_| WireError::NotText { field })?;
        check_text(text, field, bound)?;
        Ok(text.to_owned())
    }

    pub(in crate::layer) fn instant(&mut self, field: &'static str) -> Result<i64, WireError> {
        let instant = i64::from_be_bytes(self.array(field)?);
        check_instant(instant, field)?;
        Ok(instant)
    }

    pub(in crate::layer) fn key(&mut self, field: &'static str) -> Result<Did, WireError> {
        Did::from_bytes(&self.array(field)?).map_err(|reason| WireError::Key { field, reason })
    }

    pub(in crate::layer) fn signature(&mut self) -> Result<Signature, WireError> {
        self.array("signature").map(Signature)
    }

    pub(in crate::layer) fn proof(&mut self, field: &'static str) -> Result<Proof, WireError> {
        let slot = match self.array(field)? {
            [OWN] => Slot::Own(self.key(field)?),
            [INLINE] => {
                let mut bytes = self.slice(Delegation::LEN, field)?;
                let delegation = Delegation::decode(&mut bytes).map_err(|error| match error {
                    DelegationError::Truncated => WireError::Truncated { field },
                    DelegationError::Key(reason) => WireError::Key { field, reason },
                })?;
                Slot::Inline(std::sync::Arc::new(delegation))
            }
            [tag] => return Err(WireError::UnknownTag { field, tag }),
        };
        Ok(Proof { slot, signature: self.signature()? })
    }

    /// What `read` reads, if it is there.
    pub(in crate::layer) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        match self.array(field)? {
            [0] => Ok(None),
            [1] => read(self).map(Some),
            [tag] => Err(WireError::UnknownTag { field, tag }),
        }
    }
}

/// Appends bytes behind their length.
pub(in crate::layer) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // No memory holds so much in one value, and every reader's bound is far below.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(in crate::layer) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(in crate::layer) fn put_instant(out: &mut Vec<u8>, instant: &i64) {
    out.extend_from_slice(&instant.to_be_bytes());
}

/// Appends what may be missing.
pub(in crate::layer) fn put_optional<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T))
where
    T: ?Sized,
{
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

/// Appends a proof.
///
/// # Errors
/// [`WireError::Reference`] for one that refers to a delegation.
pub(in crate::layer) fn put_proof(out: &mut Vec<u8>, proof: &Proof, field: &'static str) -> Result<(), WireError> {
    match &proof.slot {
        Slot::Own(did) => {
            out.push(OWN);
            out.extend_from_slice(did.as_bytes());
        }
        Slot::Inline(delegation) => {
            out.push(INLINE);
            delegation.encode(out);
        }
        Slot::Digest(_) => return Err(WireError::Reference { field }),
    }
    out.extend_from_slice(proof.signature.as_bytes());
    Ok(())
}

/// Says whether a text has something to say, within `bound` bytes.
pub(in crate::layer) const fn check_text(text: &str, field: &'static str, bound: usize) -> Result<(), WireError> {
    match text.len() {
        0 => Err(WireError::Empty { field }),
        length if length > bound => Err(WireError::TooLong { field, length, bound }),
        _ => Ok(()),
    }
}

/// Says whether an instant can be one.
pub(in crate::layer) const fn check_instant(instant: i64, field: &'static str) -> Result<(), WireError> {
    if instant < 0 || instant > INSTANT_MAX { Err(WireError::Instant { field, instant }) } else { Ok(()) }
}

/// Says whether `end` lies after `begin`, and both can be instants.
pub(in crate::layer) fn check_span(begin: i64, end: i64) -> Result<(), WireError> {
    check_instant(begin, "issued-at")?;
    check_instant(end, "expiry")?;
    if end > begin { Ok(()) } else { Err(WireError::Reversed { begin, end }) }
}
