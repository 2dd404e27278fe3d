//! What chunks join to is judged as anything else, and must be what they say (law L2.8). Each case is one origin that
//! signs chunks of something else, since nobody else can.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use admit_one::{
    identity::{Did, KeySigner, Slot},
    link::Arrival,
    message::{Class, Content, FRAME_LIMIT, Incarnation, Kind, Payload, TagClassifier, TransactionDigest, TxId},
};
use bytes::Bytes;
use tower::{Layer, Service, service_fn};

use crate::fixture::{Calls, Counters, NETWORK, Node, Sender, class_of, refused};

const DATA: &[u8] = b"\x02a message that is cut in two";

/// An original, and what its chunks say of it.
struct Cut {
    original: Payload,
    said: Content,
    digest: TransactionDigest,
    /// Where to cut off its encoding's end.
    short: usize,
}

impl Cut {
    /// An honest one.
    fn of(from: &mut Sender, to: &Node) -> Self {
        let content = from.content(to.did(), DATA);
        Self::from(from, content)
    }

    fn from(from: &Sender, content: Content) -> Self {
        let digest = content.digest(NETWORK, &from.origin(), class_of(&content));
        let original = from.sign(content.clone(), content.destination, 0);
        Self { original, said: content, digest, short: 0 }
    }

    /// The two chunks of it, signed by `from`.
    fn chunks(self, from: &Sender, to: Did) -> [Arrival; 2] {
        // A frame of the original has, behind its marker, next hop, budget and hop's proof, what is cut.
        let frame = self.original.encode(FRAME_LIMIT).expect("fits");
        let hop = match self.original.proof.slot {
            Slot::Inline(_) => 209,
            Slot::Own(_) | Slot::Digest(_) => 97,
        };
        let encoded = frame.slice(8 + 32 + 1 + hop..frame.len() - self.short);
        let head = match TagClassifier::application("", b"") {
            Ok(tag) if self.said.data.first() == tag.first() => 2 + usize::from(self.said.data[1]),
            _ => 1,
        };
        let size = encoded.len().div_ceil(2);
        [0, 1].map(|index: u32| {
            let slice = if index == 0 { &encoded[..size] } else { &encoded[size..] };
            let length = encoded.len() as u64;
            let kind = Kind::Chunk { index, count: 2, original: self.digest, length };
            let data = [&self.said.data[..head], slice].concat().into();
            let content = Content { destination: to, kind, data, ..self.said.clone() };
            from.arrival(&from.sign(content, to, 0))
        })
    }
}

type Case = fn(&mut Sender, &Node) -> Cut;

/// What is presented, the label of its refusal, and what the refusal must speak of.
const CASES: &[(&str, &str, &str, Case)] = &[
    ("a nested chunk", "nested_chunk", "is itself a chunk", |from, to| {
        let mut content = from.content(to.did(), DATA);
        content.kind = Kind::Chunk { index: 0, count: 1, original: TransactionDigest([1; 32]), length: 28 };
        Cut::from(from, content)
    }),
    ("a reference slot", "original_reference", "refers to a delegation", |from, to| {
        let mut cut = Cut::of(from, to);
        let delegation = KeySigner::generate().delegate(from.signer.key(), 1, 2);
        cut.original.transaction.proof.slot = Slot::Digest(delegation.digest());
        cut
    }),
    ("an encoding that ends early", "original_malformed", "ends inside its data", |from, to| Cut {
        short: 1,
        ..Cut::of(from, to)
    }),
    ("another tx_id", "original_mismatch", "tx_id", |from, to| said(from, to, |said| said.tx_id = TxId([0; 16]))),
    ("another incarnation", "original_mismatch", "incarnation", |from, to| {
        said(from, to, |said| said.incarnation = Incarnation(said.incarnation.0 - 1))
    }),
    ("another sequence", "original_mismatch", "sequence", |from, to| said(from, to, |said| said.sequence += 1)),
    ("another issued-at", "original_mismatch", "issued-at", |from, to| said(from, to, |said| said.issued_at -= 1)),
    ("another ttl", "original_mismatch", "ttl", |from, to| said(from, to, |said| said.ttl -= 1)),
    ("another class", "original_mismatch", "class", |from, to| {
        said(from, to, |said| said.data = Bytes::from_static(b"\x01"))
    }),
    ("another namespace", "original_mismatch", "head", |from, to| {
        let mut content = from.content(to.did(), DATA);
        content.data = TagClassifier::application("mine", b"hello").expect("short").into();
        let mut cut = Cut::from(from, content);
        cut.said.data = TagClassifier::application("yours", b"").expect("short").into();
        cut
    }),
    ("another destination", "original_mismatch", "destination", |from, _| {
        let content = from.content(KeySigner::generate().key(), DATA);
        Cut::from(from, content)
    }),
    ("another origin", "original_mismatch", "origin", |from, to| {
        let mut cut = Cut::of(from, to);
        let other = Sender::with(&to.clock, KeySigner::generate());
        cut.original = other.sign(cut.said.clone(), to.did(), 0);
        cut
    }),
    ("another digest", "original_mismatch", "digest", |from, to| Cut {
        digest: TransactionDigest([9; 32]),
        ..Cut::of(from, to)
    }),
    ("data of no class", "unclassified", "no class", |from, to| {
        let mut content = from.content(to.did(), DATA);
        content.data = Bytes::from_static(b"\x09");
        let mut cut = Cut::from(from, content);
        cut.said.data = Bytes::from_static(b"\x02");
        cut
    }),
    ("a forged signature", "origin_signature", "signature", |from, to| {
        let mut cut = Cut::of(from, to);
        cut.original.transaction.proof.signature.0[7] ^= 1;
        cut
    }),
    ("a delegation that has expired", "delegation_expired", "origin", |from, to| {
        let now = from.content(to.did(), DATA).issued_at;
        delegated(from, to, now - 1_000, 1_000)
    }),
    ("a delegation that has not begun", "delegation_not_yet_valid", "origin", |from, to| {
        let now = from.content(to.did(), DATA).issued_at;
        delegated(from, to, now + 3_001, 1_000)
    }),
    ("a forged delegation", "delegation_signature", "origin", |from, to| {
        let now = from.content(to.did(), DATA).issued_at;
        let (account, plain) = (KeySigner::generate(), from.signer.clone());
        let good = account.delegate(plain.key(), now, 1_000);
        from.signer = plain.with_delegation(good).expect("for this key");
        let mut cut = Cut::of(from, to);
        let mut bytes = Vec::new();
        account.delegate(from.signer.key(), now, 1_001).encode(&mut bytes);
        bytes[79] -= 1;
        bytes[100] ^= 1;
        let forged = admit_one::identity::Delegation::decode(&mut bytes.as_slice()).expect("well-formed");
        cut.original.transaction.proof.slot = Slot::Inline(Arc::new(forged));
        cut
    }),
];

/// Chunks that say something else than the original.
fn said(from: &mut Sender, to: &Node, change: impl FnOnce(&mut Content)) -> Cut {
    let mut cut = Cut::of(from, to);
    change(&mut cut.said);
    cut
}

/// An original under a delegation of its own, of the same delegator as its chunks'.
fn delegated(from: &mut Sender, to: &Node, issued_at: u64, ttl: u64) -> Cut {
    let (account, plain) = (KeySigner::generate(), from.signer.clone());
    let own = account.delegate(plain.key(), issued_at, ttl);
    from.signer = plain.clone().with_delegation(own).expect("for this key");
    let cut = Cut::of(from, to);
    let now = cut.said.issued_at;
    from.signer = plain.clone().with_delegation(account.delegate(plain.key(), now, 60_000)).expect("for this key");
    cut
}

#[tokio::test]
async fn l2_8_an_original_that_is_not_what_its_chunks_say_is_refused_by_name_and_its_message_has_failed() {
    let node = Node::start().await;
    let counters = Counters::record();
    let calls = Calls::default();
    let noted = calls.clone();
    let layer = node.layer().build();
    let handler = service_fn(move |admitted| {
        noted.note(&admitted);
        std::future::ready(Ok::<_, Infallible>(()))
    });
    for (what, label, speaks_of, case) in CASES {
        let mut service = layer.layer(handler.clone());
        let mut from = Sender::new(&node.clock);
        let cut = case(&mut from, &node);
        let [first, last] = cut.chunks(&from, node.did());
        let copy = from.raw(first.bytes.clone());
        service.call(first).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let refusal = refused(service.call(last).await);
        assert_eq!(refusal.label(), *label, "{what}: {refusal}");
        assert!(refusal.to_string().contains(speaks_of), "{what}: {refusal}");
        let counted = counters.take_all("reason");
        let failed = (String::from("admit_one_reassembly_failures_total"), String::from("original"));
        let refusal = (String::from("admit_one_refusals_total"), String::from(*label));
        assert_eq!(counted, HashMap::from([(failed, 1), (refusal, 1)]), "{what} is counted once");
        assert_eq!(refused(layer.layer(handler.clone()).call(copy).await).label(), "chunk_of_failed", "{what}");
        assert_eq!((node.streams(), calls.sequences()), (0, vec![]), "{what} leaves nothing behind");
        counters.take_all("reason");
    }
}

#[tokio::test]
async fn l1_2_an_original_under_a_delegation_is_from_its_delegator() {
    let node = Node::start().await;
    let calls = Calls::default();
    let noted = calls.clone();
    let mut service = node.layer().build().layer(service_fn(move |admitted| {
        noted.note(&admitted);
        std::future::ready(Ok::<_, Infallible>(()))
    }));
    let (account, device) = (KeySigner::generate(), KeySigner::generate());
    let mut from = Sender::with(&node.clock, device.clone());
    let now = from.content(node.did(), DATA).issued_at;
    from.signer = device.clone().with_delegation(account.delegate(device.key(), now, 1_000)).expect("for this key");
    let cut = Cut::of(&mut from, &node);
    assert_eq!(class_of(&cut.said), Class::E2e);
    for arrival in cut.chunks(&from, node.did()) {
        service.call(arrival).await.expect("taken");
    }
    assert_eq!(calls.origins(), [account.key()]);
}
