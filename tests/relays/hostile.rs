//! A hostile relay, and an honest way beside it that starts with the same link and lane: origin, relay, then the hostile
//! relay to one destination and an honest one to the other.

use std::collections::HashMap;

use admit_one::{
    identity::{Did, KeySigner, Proof, Signer},
    link::Frame,
    message::{Class, FRAME_LIMIT, MAX_HOP_BUDGET, Payload},
};
use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::Stream;
use tokio::sync::mpsc;

use crate::{
    both_transports,
    fixture::Counters,
    overlay::{Handled, Site, carried, frame, next, rest, sequences},
    support::{Raw, Transport},
};

both_transports! {
    l5_4_a_relay_that_forwards_everything_twice,
    l5_3_a_relay_that_turns_every_window_round,
    l5_3_a_relay_that_holds_one_back_for_a_whole_window,
    l2_5_a_relay_that_signs_its_hop_with_a_wrong_key,
    l2_5_a_relay_that_proves_its_hop_as_another_peer,
    l2_5_a_relay_that_proves_the_hop_to_another_peer_and_sends_it_here,
    l2_5_a_relay_that_hands_on_another_hops_proof,
    l2_5_a_relay_that_raises_the_hop_budget_under_the_old_proof,
    l2_5_a_relay_that_raises_the_hop_budget_past_the_bound,
    l2_5_a_relay_that_raises_the_hop_budget_under_its_own_proof,
    l1_5_a_relay_that_signs_for_the_origin,
    l3_7_a_relay_that_drops,
}

/// How many go each way: two windows and a bit.
const EACH: u64 = 70;

/// What is told to a forging relay: its key, and whom it sends to.
struct Hop {
    signer: KeySigner,
    to: Did,
}

impl Hop {
    fn carry(&self, payload: Payload) -> Payload {
        let budget = payload.hop_budget - 1;
        carried(payload, &self.signer, self.to, budget)
    }
}

struct Beside {
    origin: Site,
    hostile: Site,
    destinations: [Site; 2],
    handled: [mpsc::UnboundedReceiver<Handled>; 2],
    counters: Counters,
    _relays: [Site; 2],
}

impl Beside {
    async fn start(transport: Transport) -> Self {
        let (origin, mut relay) = (Site::start(transport).await, Site::start(transport).await);
        let (hostile, mut honest) = (Site::start(transport).await, Site::start(transport).await);
        let mut destinations = [Site::start(transport).await, Site::start(transport).await];
        origin.leads_by(&relay, &[&destinations[0], &destinations[1]]);
        relay.leads_by(&hostile, &[&destinations[0]]);
        relay.leads_by(&honest, &[&destinations[1]]);
        hostile.leads_by(&destinations[0], &[&destinations[0]]);
        honest.leads_by(&destinations[1], &[&destinations[1]]);
        drop((relay.serve(), honest.serve()));
        let handled = destinations.each_mut().map(Site::serve);
        let counters = Counters::record();
        Self { origin, hostile, destinations, handled, counters, _relays: [relay, honest] }
    }

    fn hop(&self) -> Hop {
        Hop { signer: (*self.hostile.signer).clone(), to: self.destinations[0].did() }
    }

    /// Sends all, in turn to each destination; `forged` frames come of what goes by the hostile relay. What the
    /// destination behind it dispatched, and what was refused anywhere.
    async fn run<M>(&mut self, forged: u64, mut forge: M) -> (Vec<u64>, HashMap<String, u64>)
    where
        M: FnMut(&Hop, Payload) -> Vec<Payload> + Send + 'static,
    {
        let hop = self.hop();
        let mut settlements = self.hostile.forge(None, move |payload, credit| {
            drop(credit);
            forge(&hop, payload).into_iter().map(|payload| frame(payload, None)).collect::<Vec<Frame>>()
        });
        let [behind, beside] = &self.destinations;
        self.origin.send(Class::E2e, EACH, &[behind, beside]).await;
        for _ in 0..forged {
            settlements.recv().await.expect("the relay runs").await.expect("taken over");
        }
        let found = next(&mut self.handled[1], EACH).await;
        assert_eq!(sequences(&found, &self.origin, Class::E2e), (0..EACH).collect::<Vec<_>>(), "the honest way");
        assert_eq!(rest(&mut self.handled[1]), []);
        let behind = rest(&mut self.handled[0]);
        let dispatched = sequences(&behind, &self.origin, Class::E2e);
        assert_eq!(dispatched.len(), behind.len(), "nothing of another origin");
        (dispatched, self.counters.refusals())
    }
}

fn refused(label: &str, count: u64) -> HashMap<String, u64> {
    [(label.to_owned(), count)].into()
}

async fn l5_4_a_relay_that_forwards_everything_twice(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let (dispatched, refusals) =
        beside.run(2 * EACH, |hop, payload| vec![hop.carry(payload.clone()), hop.carry(payload)]).await;
    assert_eq!((dispatched, refusals), ((0..EACH).collect(), refused("replay", EACH)));
}

async fn l5_3_a_relay_that_turns_every_window_round(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let mut window = Vec::new();
    let whole = EACH / 32 * 32;
    let turning = move |hop: &Hop, payload: Payload| {
        window.push(hop.carry(payload));
        if window.len() < 32 { Vec::new() } else { window.drain(..).rev().collect() }
    };
    let (dispatched, refusals) = beside.run(whole, turning).await;
    let turned: Vec<_> = (0..whole / 32).flat_map(|window| (32 * window..32 * (window + 1)).rev()).collect();
    assert_eq!((dispatched, refusals), (turned, HashMap::new()), "each once, however late within the window");
}

async fn l5_3_a_relay_that_holds_one_back_for_a_whole_window(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let (mut held, mut passed) = (None, 0);
    let holding = move |hop: &Hop, payload: Payload| {
        let payload = hop.carry(payload);
        if held.is_none() {
            held = Some(payload);
            return Vec::new();
        }
        passed += 1;
        if passed % 32 == 0 { [Some(payload), held.take()].into_iter().flatten().collect() } else { vec![payload] }
    };
    // Held back: the first, the one after the 32 that overtook it, and so on; the last is never sent.
    let (dispatched, refusals) = beside.run(EACH - 1, holding).await;
    let expected: Vec<_> = (0..EACH).filter(|sequence| sequence % 33 != 0).collect();
    assert_eq!((dispatched, refusals), (expected, refused("stale", EACH / 33)));
}

async fn l2_5_a_relay_that_signs_its_hop_with_a_wrong_key(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let wrong = KeySigner::generate();
    let signing = move |hop: &Hop, payload: Payload| {
        let mut payload = carried(payload, &wrong, hop.to, 3);
        payload.proof.slot = hop.signer.slot();
        vec![payload]
    };
    let (dispatched, refusals) = beside.run(EACH, signing).await;
    assert_eq!((dispatched, refusals), (vec![], refused("hop_signature", EACH)));
}

async fn l2_5_a_relay_that_proves_its_hop_as_another_peer(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let another = KeySigner::generate();
    let (dispatched, refusals) =
        beside.run(EACH, move |hop, payload| vec![carried(payload, &another, hop.to, 3)]).await;
    assert_eq!((dispatched, refusals), (vec![], refused("hop_not_peer", EACH)));
}

async fn l2_5_a_relay_that_raises_the_hop_budget_under_the_old_proof(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let raising = |hop: &Hop, payload: Payload| {
        let carried = hop.carry(payload);
        vec![Payload { hop_budget: carried.hop_budget + 1, ..carried }]
    };
    let (dispatched, refusals) = beside.run(EACH, raising).await;
    assert_eq!((dispatched, refusals), (vec![], refused("hop_signature", EACH)));
}

async fn l2_5_a_relay_that_raises_the_hop_budget_past_the_bound(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let raising = |hop: &Hop, payload: Payload| vec![Payload { hop_budget: MAX_HOP_BUDGET + 1, ..hop.carry(payload) }];
    let (dispatched, refusals) = beside.run(EACH, raising).await;
    assert_eq!((dispatched, refusals), (vec![], refused("hop_budget_too_great", EACH)));
}

/// It may: a hop budget is its relay's word. It lengthens a loop, and admits nothing a second time.
async fn l2_5_a_relay_that_raises_the_hop_budget_under_its_own_proof(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let raising = |hop: &Hop, payload: Payload| {
        vec![carried(payload.clone(), &hop.signer, hop.to, MAX_HOP_BUDGET), carried(payload, &hop.signer, hop.to, 63)]
    };
    let (dispatched, refusals) = beside.run(2 * EACH, raising).await;
    assert_eq!((dispatched, refusals), ((0..EACH).collect(), refused("replay", EACH)));
}

async fn l1_5_a_relay_that_signs_for_the_origin(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let signing = |hop: &Hop, payload: Payload| {
        let mut payload = hop.carry(payload);
        let Proof { signature, .. } = &mut payload.transaction.proof;
        *signature = hop.signer.sign_now(&[7; 32]);
        vec![payload]
    };
    let (dispatched, refusals) = beside.run(EACH, signing).await;
    assert_eq!((dispatched, refusals), (vec![], refused("origin_signature", EACH)));
}

async fn l3_7_a_relay_that_drops(transport: Transport) {
    let mut beside = Beside::start(transport).await;
    let mut taken = 0;
    let dropping = move |hop: &Hop, payload: Payload| {
        taken += 1;
        if taken % 2 == 0 { Vec::new() } else { vec![hop.carry(payload)] }
    };
    let (dispatched, refusals) = beside.run(EACH / 2, dropping).await;
    assert_eq!((dispatched, refusals), ((0..EACH).step_by(2).collect(), HashMap::new()));
}

/// A channel spoken by hand, so that a frame can be sent to another peer than it names.
struct Lane(Stream);

impl Lane {
    async fn open(raw: &mut Raw, site: &mut Site, class: Class) -> Self {
        raw.connect(&mut site.node).await;
        let mut stream = raw.open(site.node.peer).await;
        let hello = [[class.lane(), 4].as_slice(), &1_u64.to_be_bytes()].concat();
        stream.write_all(&hello).await.expect("writes");
        stream.flush().await.expect("writes");
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await.expect("is answered");
        assert_eq!(answer[0], 0, "accepted");
        Self(stream)
    }

    /// Sends `payload`, and waits until it is taken over, as the `count`th of the channel.
    async fn send(&mut self, payload: &Payload, count: u64) {
        let bytes = payload.encode(FRAME_LIMIT).expect("fits a frame");
        let length = u32::try_from(bytes.len()).expect("fits a frame").to_be_bytes();
        self.0.write_all(&[&length, &*bytes].concat()).await.expect("writes");
        self.0.flush().await.expect("writes");
        let mut credit = [0; 8];
        self.0.read_exact(&mut credit).await.expect("is credited");
        assert_eq!(u64::from_be_bytes(credit), count);
    }
}

/// Runs with a relay that hands on nothing, and then puts what `forge` makes of what it kept on a lane of its second
/// identity `raw` to the destination.
async fn by_hand<M>(transport: Transport, mut forge: M) -> (Vec<u64>, HashMap<String, u64>)
where
    M: FnMut(&KeySigner, Did, Payload) -> Payload,
{
    let mut beside = Beside::start(transport).await;
    let (keep, mut kept) = mpsc::unbounded_channel();
    let (dispatched, refusals) = beside
        .run(0, move |_, payload| {
            keep.send(payload).expect("the test runs");
            Vec::new()
        })
        .await;
    assert_eq!((dispatched, refusals), (vec![], HashMap::new()));
    let key = libp2p::identity::Keypair::generate_ed25519();
    let signer = KeySigner::from_keypair(&key).expect("an Ed25519 key");
    let options = crate::support::Options { key, ..Default::default() };
    let mut raw = Raw::with(transport, options).await;
    let [behind, beside_it] = &mut beside.destinations;
    let other = beside_it.did();
    let mut lane = Lane::open(&mut raw, behind, Class::E2e).await;
    for count in 1..=EACH {
        let payload = kept.recv().await.expect("all were kept");
        lane.send(&forge(&signer, other, payload), count).await;
    }
    let behind = rest(&mut beside.handled[0]);
    (sequences(&behind, &beside.origin, Class::E2e), beside.counters.refusals())
}

async fn l2_5_a_relay_that_proves_the_hop_to_another_peer_and_sends_it_here(transport: Transport) {
    let forging = |signer: &KeySigner, other: Did, payload: Payload| carried(payload, signer, other, 3);
    assert_eq!(by_hand(transport, forging).await, (vec![], refused("not_next_hop", EACH)));
}

async fn l2_5_a_relay_that_hands_on_another_hops_proof(transport: Transport) {
    assert_eq!(by_hand(transport, |_, _, payload| payload).await, (vec![], refused("not_next_hop", EACH)));
}
