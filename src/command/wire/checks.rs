//! What a receiver checks of a frame, in its order, by the crate's own code.

use admit_one::{
    identity::{self, Proof, Slot},
    message::{
        Class, Classified, Classifier as _, DecodeError, Kind, Liveness, MESSAGE_LIMIT, NetworkId, Payload,
        TagClassifier, Transaction,
    },
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Decode;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    NotChecked,
}

/// One check and how it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// What was found, or why it was not checked.
    pub(super) detail: String,
}

impl Check {
    fn passed(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Passed, detail: detail.into() }
    }

    fn failed(name: &'static str, detail: impl ToString) -> Self {
        Self { name, verdict: Verdict::Failed, detail: detail.to_string() }
    }

    fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::NotChecked, detail: why.into() }
    }

    pub(super) fn json(&self) -> Value {
        let verdict = match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotChecked => "not_checked",
        };
        json!({ "check": self.name, "verdict": verdict, "detail": self.detail })
    }
}

/// Every check of `frame`. Those of signatures and lifetimes need what only the receiver knows.
pub(super) fn of(asked: &Decode, frame: &Bytes) -> Vec<Check> {
    let (decoded, hop) = if asked.original {
        (Transaction::decode_self_contained(frame.clone()), None)
    } else {
        match Payload::decode(frame.clone(), asked.limit) {
            Ok(payload) => (Ok(payload.transaction.clone()), Some(payload)),
            Err(error) => (Err(error), None),
        }
    };
    let mut checks = decoding(asked, decoded.as_ref().err());
    let Ok(transaction) = decoded else { return checks };
    if let Some(payload) = &hop {
        checks.push(next_hop(asked, payload));
    }
    let class = TagClassifier.classify(&transaction.content.data);
    checks.push(match &class {
        Ok(Classified { class, namespace, .. }) => {
            Check::passed("class", named(*class, namespace.clone(), &transaction))
        }
        Err(error) => Check::failed("class", format!("by the default classifier: {error}")),
    });
    checks.push(chunk(&transaction, class.as_ref().ok()));
    checks.push(lifetime(asked, &transaction));
    if let Some(payload) = &hop {
        checks.push(delegation(asked, "hop's delegation", &payload.proof, &[]));
    }
    checks.push(delegation(asked, "origin's delegation", &transaction.proof, &[transaction.content.issued_at]));
    checks.extend(signatures(asked, &transaction, hop.as_ref(), class.ok().map(|classified| classified.class)));
    checks
}

/// Length, marker and fields, of which the decoder says the first that fails.
fn decoding(asked: &Decode, error: Option<&DecodeError>) -> Vec<Check> {
    let names: &[&'static str] = if asked.original { &["length", "fields"] } else { &["length", "marker", "fields"] };
    let failing = error.map(|error| match error {
        DecodeError::Oversize { .. } => "length",
        DecodeError::WrongMarker => "marker",
        _ => "fields",
    });
    let reached = |name| {
        failing.is_none_or(|failing| names.iter().position(|n| *n == name) <= names.iter().position(|n| *n == failing))
    };
    let check = |name: &&'static str| match error {
        Some(error) if failing == Some(*name) => Check::failed(name, error),
        _ if reached(*name) => Check::passed(name, ""),
        _ => Check::skipped(name, "a check before it failed"),
    };
    names.iter().map(check).collect()
}

fn named(class: Class, namespace: Option<std::ops::Range<usize>>, transaction: &Transaction) -> String {
    match namespace.and_then(|namespace| transaction.content.data.get(namespace)) {
        Some(namespace) => format!("{}, namespace {:?}", class.label(), String::from_utf8_lossy(namespace)),
        None => class.label().to_owned(),
    }
}

fn next_hop(asked: &Decode, payload: &Payload) -> Check {
    match asked.node {
        Some(node) if node == payload.next_hop => Check::passed("next hop", "it is this node"),
        Some(node) => Check::failed("next hop", format!("this copy is for {}, not for {node}", payload.next_hop)),
        None => Check::skipped("next hop", "give --node to check it"),
    }
}

/// Whether a chunk's place, count and length fit each other and its data: the head that its class is read from, and its
/// slice.
fn chunk(transaction: &Transaction, class: Option<&Classified>) -> Check {
    const NAME: &str = "chunk";
    let content = &transaction.content;
    let Kind::Chunk { index, count, length, .. } = content.kind else {
        return Check::passed(NAME, "none: it is whole");
    };
    let of = format!("chunk {index} of {count} of an original of {length} bytes");
    if length > MESSAGE_LIMIT as u64 {
        return Check::failed(NAME, format!("{of}, over the limit of {MESSAGE_LIMIT}"));
    }
    let Some(slice) = content.kind.slice() else { return Check::failed(NAME, format!("there is no {of}")) };
    let Some(Classified { head, .. }) = class else {
        return Check::skipped(NAME, "where its slice begins, its class says");
    };
    match content.data.len().checked_sub(*head) {
        Some(found) if found == slice.len() => Check::passed(NAME, format!("{of}, its bytes {slice:?}")),
        found => {
            let found = found.unwrap_or_default();
            Check::failed(NAME, format!("{of} has {} bytes behind its head, not {found}", slice.len()))
        }
    }
}

fn lifetime(asked: &Decode, transaction: &Transaction) -> Check {
    let content = &transaction.content;
    let span = format!("from {} to {} ms", content.issued_at.saturating_sub(asked.sigma), content.expires_at());
    let Some(at) = asked.at else {
        return Check::skipped("lifetime", format!("it lives {span}; give --at to check it"));
    };
    match content.liveness(at, asked.sigma) {
        Liveness::Live => Check::passed("lifetime", format!("it lives {span}")),
        Liveness::Expired => Check::failed("lifetime", format!("expired: it lived {span}")),
        Liveness::FromTheFuture => Check::failed("lifetime", format!("from the future: it lives {span}")),
    }
}

/// A delegation's own signature, and whether it is valid when judged and at `instants` besides.
fn delegation(asked: &Decode, name: &'static str, proof: &Proof, instants: &[u64]) -> Check {
    match &proof.slot {
        Slot::Own(_) => Check::passed(name, "none: the key speaks for itself"),
        Slot::Digest(_) => Check::skipped(name, "a reference: only the receiver of its link holds what it names"),
        Slot::Inline(delegation) => {
            let ends = delegation.issued_at().saturating_add(delegation.ttl());
            let span = format!("valid from {} to {ends} ms", delegation.issued_at());
            let invalid = instants.iter().copied().chain(asked.at).find(|at| !delegation.valid_at(*at, asked.sigma));
            if delegation.verify().is_err() {
                Check::failed(name, format!("the delegator {} did not sign it", delegation.delegator()))
            } else if let Some(at) = invalid {
                Check::failed(name, format!("{span}, and not at {at} ms"))
            } else {
                Check::passed(name, span)
            }
        }
    }
}

fn signatures(asked: &Decode, transaction: &Transaction, hop: Option<&Payload>, class: Option<Class>) -> Vec<Check> {
    const ORIGIN: &str = "origin's signature";
    const HOP: &str = "hop's signature";
    let skip = |why: &str| {
        let mut skipped = vec![Check::skipped(ORIGIN, why)];
        skipped.extend(hop.map(|_| Check::skipped(HOP, why)));
        skipped
    };
    let Some(network) = asked.network else { return skip("the network is not in a frame: give --network to check it") };
    let Some(class) = class else { return skip("what is signed holds the class") };
    let (Some(origin), Some(key)) = (transaction.origin(), transaction.proof.slot.key()) else {
        return skip("what is signed holds the origin, which stands behind a reference");
    };
    let digest = transaction.content.digest(NetworkId(network), &origin, class);
    let mut checks = vec![signature(ORIGIN, key, digest.0, &transaction.proof)];
    if let Some(payload) = hop {
        let message = Payload::hop_digest(&digest, &payload.next_hop, payload.hop_budget);
        checks.push(match payload.proof.slot.key() {
            Some(key) => signature(HOP, key, message, &payload.proof),
            None => Check::skipped(HOP, "its key stands behind a reference"),
        });
    }
    checks
}

fn signature(name: &'static str, key: identity::Did, message: [u8; 32], proof: &Proof) -> Check {
    match (identity::Check { key, message, signature: proof.signature }).verify() {
        Ok(()) => Check::passed(name, format!("by {key} over {}", hex::encode(message))),
        Err(_) => Check::failed(
            name,
            format!("not by {key} over {}: another network, classifier or content", hex::encode(message)),
        ),
    }
}
