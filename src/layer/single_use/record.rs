//! The records of single-use authority.
//!
//! - A mark, [`MARK_RECORD_LEN`] bytes: id 32, subject 32, kept until 8, progress 1, owner's epoch 8 and serial 8, operation
//!   flag 1 and id 32, checksum 16. Its kind is its table, and the checksum's.
//! - An operation, at most [`OPERATION_RECORD_MAX`] bytes: id 32, commitment 32, subject 32, deadline 8, state 1, owner's
//!   epoch 8 and serial 8, marks' count 1 and of each its kind 1 and id 32, and of a finished one the outcome's kind 1 and
//!   bytes to the end; checksum 16.
//! - The clock, [`CLOCK_RECORD_LEN`] bytes: high water 8, floors of nonces, approvals and operations 8 each, epoch 8,
//!   checksum 16. The stop: flag 1, checksum 16.
//!
//! Numbers are big-endian, instants milliseconds since the Unix epoch.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Commitment, MarkId, MarkKind, OUTCOME_MAX, OperationId, Outcome, OutcomeKind};
use crate::{
    clock::WallMs,
    storage::{
        KEY_MAX, Table, VALUE_MAX,
        commit::CommitConfig,
        seal::{SEAL_LEN, seal, unseal},
    },
};

/// The key of the clock record, in the clock table.
pub(crate) const CLOCK_KEY: &[u8] = b"single-use";
/// The key of single-use authority's own birth record, in the clock table.
pub(crate) const BIRTH_KEY: &[u8] = b"single-use-birth";
/// The key of the emergency stop, in the clock table.
pub(crate) const STOP_KEY: &[u8] = b"stop";

/// The length of a mark's record, in bytes.
pub(super) const MARK_RECORD_LEN: usize = 32 + 32 + 8 + 1 + 16 + 33 + SEAL_LEN;
/// The most marks that an operation holds. A continuation that brings more consumes the oldest for good.
pub(super) const OPERATION_MARKS: usize = 8;
const OPERATION_HEAD: usize = 32 + 32 + 32 + 8 + 1 + 16 + 1;
/// The most bytes of an operation's record.
pub(super) const OPERATION_RECORD_MAX: usize = OPERATION_HEAD + OPERATION_MARKS * 33 + 1 + OUTCOME_MAX + SEAL_LEN;
/// The length of the clock record, in bytes.
pub(super) const CLOCK_RECORD_LEN: usize = 8 + 3 * 8 + 8 + SEAL_LEN;

const ID_LEN: usize = 32;
const NONCE_KIND: &str = "admit-one nonce record 1";
const APPROVAL_KIND: &str = "admit-one approval record 1";
const OPERATION_KIND: &str = "admit-one operation record 1";
const CLOCK_KIND: &str = "admit-one single-use clock record 1";
const STOP_KIND: &str = "admit-one stop record 1";

// Law L9.1: the maxima hold at compile time, and the default budgets have room for as many as the defaults allow.
const _: () = assert!(ID_LEN <= KEY_MAX && MARK_RECORD_LEN <= VALUE_MAX && OPERATION_RECORD_MAX <= VALUE_MAX);
const _: () = assert!(CommitConfig::NONCE.records * (ID_LEN + MARK_RECORD_LEN) as u64 <= CommitConfig::NONCE.bytes);
const _: () =
    assert!(CommitConfig::APPROVAL.records * (ID_LEN + MARK_RECORD_LEN) as u64 <= CommitConfig::APPROVAL.bytes);
const _: () = assert!(CLOCK_RECORD_LEN <= 1_024);

/// Whose authority it is: a key's bytes, which were a key when they were presented and count places here.
pub(super) type Subject = [u8; 32];

/// A mark among all of both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct MarkKey {
    pub(super) kind: MarkKind,
    pub(super) id: MarkId,
}

/// Who reserved: a number within an epoch. A later epoch's owners are others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: u64,
    pub(super) serial: u64,
}

/// How far a mark has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Reserved,
    Dispatching,
    Committed,
}

/// What is durable of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MarkRecord {
    pub(super) subject: Subject,
    pub(super) kept_until: WallMs,
    pub(super) progress: Progress,
    pub(super) owner: Owner,
    pub(super) operation: Option<OperationId>,
}

/// How far an operation has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OperationState {
    Reserved,
    Dispatching,
    /// It ended, and nothing is recorded of how.
    Unknown,
    Finished(Outcome),
}

/// What is durable of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OperationRecord {
    pub(super) commitment: Commitment,
    pub(super) subject: Subject,
    pub(super) deadline: WallMs,
    pub(super) owner: Owner,
    /// At most [`OPERATION_MARKS`], oldest first.
    pub(super) marks: Vec<MarkKey>,
    pub(super) state: OperationState,
}

/// The store's instants: what its clock read, and up to where it forgot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClockRecord {
    /// The greatest reading of the wall clock.
    pub(crate) high_water: WallMs,
    /// The greatest expiry of a nonce that was removed.
    pub(crate) nonce_floor: WallMs,
    /// The greatest expiry of an approval that was removed.
    pub(crate) approval_floor: WallMs,
    /// The greatest deadline of an operation that was removed.
    pub(crate) operation_floor: WallMs,
    /// Which opening of the store this is.
    pub(crate) epoch: u64,
}

impl ClockRecord {
    /// What expires at or below this instant is refused.
    pub(super) const fn floor(&self, table: Table) -> WallMs {
        match table {
            Table::Nonce => self.nonce_floor,
            Table::Approval => self.approval_floor,
            _ => self.operation_floor,
        }
    }

    /// Notes that a record of `table` that expired at `instant` was removed.
    pub(super) fn raise(&mut self, table: Table, instant: WallMs) {
        let floor = match table {
            Table::Nonce => &mut self.nonce_floor,
            Table::Approval => &mut self.approval_floor,
            _ => &mut self.operation_floor,
        };
        *floor = instant.max(*floor);
    }

    /// The greatest of all floors: the high-water mark is never moved below it.
    pub(crate) fn greatest_floor(&self) -> WallMs {
        self.nonce_floor.max(self.approval_floor).max(self.operation_floor)
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(CLOCK_RECORD_LEN);
        for number in [self.high_water, self.nonce_floor, self.approval_floor, self.operation_floor, self.epoch] {
            out.put_u64(number);
        }
        seal(CLOCK_KIND, out)
    }

    /// Reads [`ClockRecord::encode`] back; `None` where the bytes are no clock record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = unseal(CLOCK_KIND, bytes)?;
        let mut number = || record.try_get_u64().ok();
        let clock = Self {
            high_water: number()?,
            nonce_floor: number()?,
            approval_floor: number()?,
            operation_floor: number()?,
            epoch: number()?,
        };
        record.is_empty().then_some(clock)
    }
}

pub(super) fn encode_stop(stopped: bool) -> Bytes {
    seal(STOP_KIND, BytesMut::from(&[u8::from(stopped)][..]))
}

/// Whether a stop record says that the stop is on. One that does not decode does.
pub(crate) fn decode_stop(bytes: &[u8]) -> bool {
    unseal(STOP_KIND, bytes) != Some(&[0])
}

/// Whether the bytes are the record of `table` that was found under `key`, for an operator.
pub(crate) fn read(table: Table, key: &[u8], bytes: &[u8]) -> Result<(), &'static str> {
    let id = match table {
        Table::Nonce => MarkRecord::decode(MarkKind::Nonce, bytes)?.0.0,
        Table::Approval => MarkRecord::decode(MarkKind::Approval, bytes)?.0.0,
        Table::Operation => OperationRecord::decode(bytes)?.0.0,
        Table::Sender | Table::Receiver | Table::Clock | Table::Custody => return Err("it is of no single-use table"),
    };
    if id == key { Ok(()) } else { Err("it is filed under another key than its own") }
}

const fn kind(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Nonce => NONCE_KIND,
        MarkKind::Approval => APPROVAL_KIND,
    }
}

impl MarkRecord {
    pub(super) fn encode(&self, key: &MarkKey) -> Bytes {
        let mut out = BytesMut::with_capacity(MARK_RECORD_LEN);
        out.put_slice(&key.id.0);
        out.put_slice(&self.subject);
        out.put_u64(self.kept_until);
        out.put_u8(match self.progress {
            Progress::Reserved => 1,
            Progress::Dispatching => 2,
            Progress::Committed => 3,
        });
        put_owner(&mut out, self.owner);
        out.put_u8(u8::from(self.operation.is_some()));
        out.put_slice(&self.operation.unwrap_or(OperationId([0; ID_LEN])).0);
        seal(kind(key.kind), out)
    }

    /// Reads [`MarkRecord::encode`] back, with the id that it carries; total.
    pub(super) fn decode(of: MarkKind, bytes: &[u8]) -> Result<(MarkId, Self), &'static str> {
        let mut body = unseal(kind(of), bytes).ok_or(SEAL)?;
        let id = MarkId(take(&mut body)?);
        let subject = take(&mut body)?;
        let kept_until = body.try_get_u64().map_err(|_| SHORT)?;
        let progress = match body.try_get_u8().map_err(|_| SHORT)? {
            1 => Progress::Reserved,
            2 => Progress::Dispatching,
            3 => Progress::Committed,
            _ => return Err("it does not say how far it has come"),
        };
        let owner = owner(&mut body)?;
        let linked = body.try_get_u8().map_err(|_| SHORT)?;
        let operation = OperationId(take(&mut body)?);
        let operation = match (linked, operation.0 == [0; ID_LEN]) {
            (0, true) => None,
            (1, _) => Some(operation),
            _ => return Err("it does not say whether it belongs to an operation"),
        };
        match body.is_empty() {
            true => Ok((id, Self { subject, kept_until, progress, owner, operation })),
            false => Err(LONG),
        }
    }
}

impl OperationRecord {
    /// How long its record is, without an outcome.
    pub(super) const fn head(marks: usize) -> usize {
        OPERATION_HEAD + marks * 33 + SEAL_LEN
    }

    pub(super) fn encode(&self, id: &OperationId) -> Bytes {
        let mut out = BytesMut::with_capacity(Self::head(self.marks.len()));
        out.put_slice(&id.0);
        out.put_slice(&self.commitment.0);
        out.put_slice(&self.subject);
        out.put_u64(self.deadline);
        out.put_u8(match self.state {
            OperationState::Reserved => 1,
            OperationState::Dispatching => 2,
            OperationState::Unknown => 3,
            OperationState::Finished(_) => 4,
        });
        put_owner(&mut out, self.owner);
        let marks = self.marks.iter().take(OPERATION_MARKS);
        // At most eight.
        out.put_u8(marks.len() as u8);
        for mark in marks {
            out.put_u8(mark.kind.table().tag());
            out.put_slice(&mark.id.0);
        }
        if let OperationState::Finished(outcome) = &self.state {
            out.put_u8(match outcome.kind {
                OutcomeKind::Receipt => 1,
                OutcomeKind::Incident => 2,
                OutcomeKind::EconomicMutation => 3,
            });
            out.put_slice(&outcome.bytes);
        }
        seal(OPERATION_KIND, out)
    }

    /// Reads [`OperationRecord::encode`] back, with the id that it carries; total.
    pub(super) fn decode(bytes: &[u8]) -> Result<(OperationId, Self), &'static str> {
        let mut body = unseal(OPERATION_KIND, bytes).ok_or(SEAL)?;
        let id = OperationId(take(&mut body)?);
        let commitment = Commitment(take(&mut body)?);
        let subject = take(&mut body)?;
        let deadline = body.try_get_u64().map_err(|_| SHORT)?;
        let state = body.try_get_u8().map_err(|_| SHORT)?;
        let owner = owner(&mut body)?;
        let count = usize::from(body.try_get_u8().map_err(|_| SHORT)?);
        if count > OPERATION_MARKS {
            return Err("it holds more marks than an operation may");
        }
        let mut marks = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = match Table::from_tag(body.try_get_u8().map_err(|_| SHORT)?) {
                Some(Table::Nonce) => MarkKind::Nonce,
                Some(Table::Approval) => MarkKind::Approval,
                _ => return Err("it holds a mark of no kind"),
            };
            marks.push(MarkKey { kind, id: MarkId(take(&mut body)?) });
        }
        let state = match state {
            1 => OperationState::Reserved,
            2 => OperationState::Dispatching,
            3 => OperationState::Unknown,
            4 => {
                let kind = match body.try_get_u8().map_err(|_| SHORT)? {
                    1 => OutcomeKind::Receipt,
                    2 => OutcomeKind::Incident,
                    3 => OutcomeKind::EconomicMutation,
                    _ => return Err("its outcome is of no kind"),
                };
                let bytes = Bytes::copy_from_slice(std::mem::take(&mut body));
                if bytes.len() > OUTCOME_MAX {
                    return Err("its outcome is over the bound");
                }
                OperationState::Finished(Outcome { kind, bytes })
            }
            _ => return Err("it does not say how far it has come"),
        };
        match body.is_empty() {
            true => Ok((id, Self { commitment, subject, deadline, owner, marks, state })),
            false => Err(LONG),
        }
    }
}

const SEAL: &str = "its checksum does not hold";
const SHORT: &str = "it ends early";
const LONG: &str = "bytes follow its end";

fn put_owner(out: &mut BytesMut, owner: Owner) {
    out.put_u64(owner.epoch);
    out.put_u64(owner.serial);
}

fn owner(body: &mut &[u8]) -> Result<Owner, &'static str> {
    let epoch = body.try_get_u64().map_err(|_| SHORT)?;
    Ok(Owner { epoch, serial: body.try_get_u64().map_err(|_| SHORT)? })
}

fn take(body: &mut &[u8]) -> Result<[u8; ID_LEN], &'static str> {
    let (bytes, rest) = body.split_first_chunk::<ID_LEN>().ok_or(SHORT)?;
    *body = rest;
    Ok(*bytes)
}
