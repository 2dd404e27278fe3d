use super::{Transaction, TransactionDigest};
use crate::identity::{Did, Proof};

/// The greatest hop budget that a payload may carry (law L2.5).
pub const MAX_HOP_BUDGET: u8 = 64;

const CONTEXT: &str = "admit-one hop transcript";

/// A transaction on one hop of its way, under the proof of the node that sends it on (law L2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// What is carried.
    pub transaction: Transaction,
    /// The node that this copy is for.
    pub next_hop: Did,
    /// How many more times it may be forwarded, at most [`MAX_HOP_BUDGET`].
    pub hop_budget: u8,
    /// The proof of the node that sent this copy.
    pub proof: Proof,
}

impl Payload {
    /// The digest that a hop signs.
    pub fn hop_digest(transaction: &TransactionDigest, next_hop: &Did, hop_budget: u8) -> [u8; 32] {
        blake3::Hasher::new_derive_key(CONTEXT)
            .update(&transaction.0)
            .update(next_hop.as_bytes())
            .update(&[hop_budget])
            .finalize()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeySigner;

    #[test]
    fn l2_5_a_hop_signs_the_transaction_the_next_hop_and_the_budget() {
        let did = |seed| KeySigner::from_secret(&[seed; 32]).unwrap().key();
        let digest =
            |transaction, next, budget| Payload::hop_digest(&TransactionDigest(transaction), &did(next), budget);
        let base = digest([1; 32], 2, 3);
        assert_eq!(base, digest([1; 32], 2, 3));
        for other in [digest([4; 32], 2, 3), digest([1; 32], 5, 3), digest([1; 32], 2, 4)] {
            assert_ne!(base, other);
        }
    }
}
