//! Mail for a node that is away: a carrier holds it, the node drains it when it comes back, restarts half-way, takes what
//! is there, and refuses every copy after. The carrier is a list in memory; the node's store is a real one on disk. It ends
//! by itself, with an error where anything is not as it must be.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use admit_one::clock::{Clock, SystemClock};
use admit_one::identity::{Did, KeySigner, Proof, Signer};
use admit_one::layer::inbox::{Inbox, Mail, Taken};
use admit_one::layer::window::Verdict;
use admit_one::message::{
    Class, Content, DEFAULT_TTL_MS, Kind, NetworkId, StreamKey, TagClassifier, Transaction, TxId,
};
use admit_one::{Admission, AdmissionConfig, AdmissionLayer, CommitConfig, GroupCommit, Journal, JournalConfig};
use admit_one::{LeaseConfig, Leases};

const NETWORK: NetworkId = NetworkId(1);
type Failure = Box<dyn Error + Send + Sync>;

/// One run of the destination: its inbox, and the store to shut down when it ends.
struct Destination {
    inbox: Inbox,
    admission: Admission,
    commit: GroupCommit,
}

impl Destination {
    async fn start(path: &Path, local: Did) -> Result<Self, Failure> {
        let store = Arc::new(Journal::open(path, JournalConfig::default())?);
        let commit = GroupCommit::open(store, CommitConfig::default()).await?;
        // A new store refuses what was issued before it began, and for twice this tolerance after.
        let config = AdmissionConfig { sigma: 200, custody: true, ..AdmissionConfig::default() };
        let admission = Admission::open(&commit, Arc::new(SystemClock::new()), config).await?;
        let inbox = AdmissionLayer::builder(NETWORK, local, admission.clone()).build().inbox();
        println!("the destination starts with {} in custody", admission.health().custody);
        Ok(Self { inbox, admission, commit })
    }

    async fn stop(self) {
        let Self { inbox, admission, commit } = self;
        drop((inbox, admission));
        commit.shutdown().await;
        println!("the destination stops");
    }
}

/// Signs `text` for `destination`. The sequence is reserved for mail: the stream is kept as long as that may be held.
async fn write(signer: &KeySigner, leases: &Leases, destination: Did, text: &str) -> Result<Mail, Failure> {
    let (origin, class, ttl) = (signer.key(), Class::Application, DEFAULT_TTL_MS);
    let reserved = leases.reserve_mail(&StreamKey { network: NETWORK, origin, destination, class }, ttl).await??;
    let (incarnation, sequence, issued_at) = (reserved.incarnation, reserved.sequence, SystemClock::new().wall());
    let data = TagClassifier::application("letters", text.as_bytes())?.into();
    let (kind, tx_id) = (Kind::Whole, TxId::random());
    let content = Content { destination, tx_id, incarnation, sequence, issued_at, ttl, kind, data };
    let digest = content.digest(NETWORK, &origin, class);
    let proof = Proof { slot: signer.slot(), signature: signer.sign_now(&digest.0) };
    let transaction = Mail::encode(&Transaction { content, proof })?;
    // Its carrier takes it in now.
    Ok(Mail { transaction, held_at: SystemClock::new().wall() })
}

/// What a letter says, behind its class and namespace.
fn text(taken: &Taken) -> String {
    let head = taken.namespace().map_or(0, |namespace| 2 + namespace.len());
    String::from_utf8_lossy(taken.data().get(head..).unwrap_or_default()).into_owned()
}

fn must(is: bool, what: &str) -> Result<(), Failure> {
    if is { Ok(()) } else { Err(format!("this is not what was to happen: {what}").into()) }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = |name| directory.path().join(name);
    let (sender, local) = (KeySigner::generate(), KeySigner::generate().key());
    let sending = Arc::new(Journal::open(path("sender"), JournalConfig::default())?);
    let sending = GroupCommit::open(sending, CommitConfig::default()).await?;
    let leases = Leases::open(&sending, Arc::new(SystemClock::new()), LeaseConfig::default())?;

    let node = Destination::start(&path("destination"), local).await?;
    while node.admission.health().refuses_fresh_until.is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut carrier = Vec::new();
    for text in ["good morning", "are you there?", "good night"] {
        carrier.push(write(&sender, &leases, local, text).await?);
    }
    println!("the carrier holds {} letters", carrier.len());

    // The first pass: the application takes one letter, and is not ready for the others.
    let mut took = Vec::new();
    for (place, mail) in carrier.iter().enumerate() {
        let offered = node.inbox.receive(mail.clone()).await?;
        println!("  offered {}: {:?}", offered.digest(), offered.verdict());
        must(offered.verdict() != Verdict::Redelivered, "a first delivery")?;
        if place == 0 {
            let taken = offered.take().await?;
            println!("  taken: {:?}", text(&taken));
            took.push(taken.sequence());
        }
    }
    must(node.admission.health().custody == 2, "two letters in custody")?;
    node.stop().await;

    // The second pass, by another process: the carrier still holds all of it.
    let node = Destination::start(&path("destination"), local).await?;
    must(node.admission.health().custody == 2, "two letters in custody after the restart")?;
    for (place, mail) in carrier.iter().enumerate() {
        match node.inbox.receive(mail.clone()).await {
            Ok(offered) => {
                println!("  offered {}: {:?}", offered.digest(), offered.verdict());
                must(place > 0 && offered.verdict() == Verdict::Redelivered, "redelivered, but for what was taken")?;
                let taken = offered.take().await?;
                println!("  taken: {:?}", text(&taken));
                took.push(taken.sequence());
            }
            Err(refusal) => {
                println!("  refused: {refusal}");
                must(place == 0 && refusal.label() == "replay", "what was taken is a replay")?;
            }
        }
    }
    node.stop().await;

    // The third: nothing is in custody, and nothing is shown again.
    let node = Destination::start(&path("destination"), local).await?;
    must(node.admission.health().custody == 0, "nothing in custody")?;
    for mail in carrier {
        let refusal = node.inbox.receive(mail).await.err().ok_or("a letter is offered again")?;
        println!("  refused: {refusal}");
        must(refusal.label() == "replay", "every copy is a replay")?;
    }
    node.stop().await;
    must(took == [0, 1, 2], "each letter taken once")
}
