//! The core against a naive model that keeps lists and adds everything up anew, and an honest link among hostile ones.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;
use crate::layer::reassembly::{CHUNK_OVERHEAD, MESSAGE_OVERHEAD};

/// One message of the model: every chunk that came, by whom, and what that costs them.
struct Modelled {
    sent: Sent,
    began: Duration,
    came: Vec<(Peer, u32, Vec<u8>, usize)>,
}

struct Tombstone {
    name: Name,
    /// For whom it speaks; all if none.
    of: Option<Peer>,
    refusal: ChunkRefusal,
    expires_at: WallMs,
    peer: Peer,
}

struct Model {
    config: ReassemblyConfig,
    gathering: Vec<Modelled>,
    tombstones: Vec<Tombstone>,
    in_hand: Vec<Modelled>,
}

impl Modelled {
    fn peers(&self) -> Vec<Peer> {
        let mut peers: Vec<_> = self.came.iter().map(|(peer, ..)| *peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn bytes(&self, of: Option<Peer>) -> usize {
        self.came.iter().filter(|(peer, ..)| of.is_none_or(|of| *peer == of)).map(|(.., cost)| cost).sum()
    }

    fn indices(&self) -> usize {
        let mut indices: Vec<_> = self.came.iter().map(|(_, index, ..)| *index).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.len()
    }
}

impl Model {
    fn bytes(&self, of: Option<Peer>) -> usize {
        self.gathering.iter().chain(&self.in_hand).map(|message| message.bytes(of)).sum()
    }

    fn messages(&self, of: Option<Peer>) -> usize {
        let peers = self.gathering.iter().flat_map(Modelled::peers);
        peers.filter(|peer| of.is_none_or(|of| *peer == of)).count()
    }

    fn ids(&self, of: Option<Peer>) -> usize {
        let tombstones = self.tombstones.iter().filter(|tombstone| of.is_none_or(|of| tombstone.peer == of));
        self.messages(of) + tombstones.count()
    }

    fn purge(&mut self, now: Now) {
        self.tombstones.retain(|tombstone| tombstone.expires_at > now.wall);
        self.gathering.retain(|message| message.sent.common.expires_at() > now.wall);
        let age = self.config.age;
        while let Some(old) = self.gathering.iter().find(|message| now.monotonic.saturating_sub(message.began) >= age) {
            let name = old.sent.name;
            self.close(name, ChunkRefusal::Failed(Failure::Age));
        }
    }

    fn close(&mut self, name: Name, refusal: ChunkRefusal) -> Modelled {
        let place = self.gathering.iter().position(|message| message.sent.name == name).unwrap();
        let message = self.gathering.remove(place);
        let (expires_at, peer) = (message.sent.common.expires_at(), message.peers()[0]);
        self.tombstones.push(Tombstone { name, of: None, refusal, expires_at, peer });
        message
    }

    fn fail_for(&mut self, peer: Peer, sent: &Sent) {
        let (name, expires_at) = (sent.name, sent.common.expires_at());
        let refusal = ChunkRefusal::Failed(Failure::Room);
        self.tombstones.push(Tombstone { name, of: Some(peer), refusal, expires_at, peer });
        for message in self.gathering.iter_mut().filter(|message| message.sent.name == name) {
            message.came.retain(|(of, ..)| *of != peer);
        }
        self.gathering.retain(|message| !message.came.is_empty());
    }

    /// Whether the link that most is remembered of forgot a tombstone, which it does for one of which less is.
    fn forget(&mut self, newcomer: Peer) -> bool {
        let would = self.ids(Some(newcomer)) + 1;
        let greater = self.tombstones.iter().map(|of| (self.ids(Some(of.peer)), of)).filter(|(ids, _)| *ids > would);
        let first = |of: &Tombstone| Reverse((of.expires_at, of.name, of.of));
        let Some((_, forgotten)) = greater.max_by_key(|(ids, of)| (*ids, of.peer, first(of))) else { return false };
        let (name, of) = (forgotten.name, forgotten.of);
        self.tombstones.retain(|tombstone| (tombstone.name, tombstone.of) != (name, of));
        true
    }

    /// As the table does: whether the chunk is refused, by name, or stored, or completes its message.
    fn take(&mut self, sent: &Sent, index: u32, slice: &[u8], peer: Peer, now: Now) -> Result<bool, &'static str> {
        self.purge(now);
        if now.wall >= sent.common.expires_at() {
            return Err("expired");
        }
        for of in [None, Some(peer)] {
            let closed = |tombstone: &&Tombstone| tombstone.name == sent.name && tombstone.of == of;
            if let Some(tombstone) = self.tombstones.iter().find(closed) {
                return Err(tombstone.refusal.label());
            }
        }
        let message = self.gathering.iter().find(|message| message.sent.name == sent.name);
        let came = message.map_or(&[][..], |message| &message.came);
        let conflict = message.is_some_and(|message| message.sent.common.tx_id != sent.common.tx_id)
            || came.iter().any(|(_, other, bytes, _)| *other == index && bytes != slice);
        if conflict {
            self.close(sent.name, ChunkRefusal::Failed(Failure::Conflict));
            return Err("chunk_conflict");
        }
        if came.iter().any(|(of, other, ..)| *of == peer && *other == index) {
            return Err("chunk_repeated");
        }
        let first = came.iter().all(|(of, ..)| *of != peer);
        if first && self.ids(Some(peer)) >= self.config.link_ids {
            return Err("reassembly_link_ids");
        }
        if first && self.ids(None) >= self.config.ids && !self.forget(peer) {
            return Err("reassembly_ids");
        }
        let cost = CHUNK_OVERHEAD + slice.len() + if first { MESSAGE_OVERHEAD + 1 } else { 0 };
        let refusal = if first && self.messages(Some(peer)) >= self.config.link_messages {
            Some("reassembly_link_messages")
        } else if first && self.messages(None) >= self.config.messages {
            Some("reassembly_messages")
        } else {
            self.make_room(peer, cost)
        };
        if let Some(refusal) = refusal {
            self.fail_for(peer, sent);
            return Err(refusal);
        }
        let arrived = (peer, index, slice.to_vec(), cost);
        match self.gathering.iter_mut().find(|message| message.sent.name == sent.name) {
            Some(message) => message.came.push(arrived),
            None => {
                self.gathering.push(Modelled { sent: sent.clone(), began: now.monotonic, came: vec![arrived] });
            }
        }
        let message = self.gathering.iter().find(|message| message.sent.name == sent.name).unwrap();
        let complete = message.indices() == usize::try_from(sent.common.count).unwrap();
        if complete {
            let message = self.close(sent.name, ChunkRefusal::Finished);
            self.in_hand.push(message);
        }
        Ok(complete)
    }

    fn make_room(&mut self, newcomer: Peer, cost: usize) -> Option<&'static str> {
        let wanted = self.bytes(Some(newcomer)) + cost;
        if wanted > self.config.link_bytes {
            return Some("reassembly_link_bytes");
        }
        while self.bytes(None) + cost > self.config.bytes {
            let mut greatest = None;
            for message in &self.gathering {
                for peer in message.peers() {
                    let of_link = self.bytes(Some(peer));
                    if peer != newcomer && of_link > wanted {
                        greatest = greatest.max(Some((of_link, message.bytes(Some(peer)), message.sent.name, peer)));
                    }
                }
            }
            let Some((.., name, peer)) = greatest else { return Some("reassembly_bytes") };
            let sent = self.gathering.iter().find(|message| message.sent.name == name).unwrap().sent.clone();
            self.fail_for(peer, &sent);
        }
        None
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A chunk of message `id` by `peer`; changed in its bytes, or in a field, if so.
    Chunk {
        id: u8,
        index: u32,
        peer: u8,
        changed: bool,
        renamed: bool,
    },
    Pass(u64),
    Jump(i64),
    LetGo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rare = || prop::bool::weighted(0.02);
    let step = prop_oneof![
        30 => (0..12_u8, 0..5_u32, 0..4_u8, rare(), rare()).prop_map(|(id, index, peer, changed, renamed)| {
            Step::Chunk { id, index, peer, changed, renamed }
        }),
        2 => (0..200_000_u64).prop_map(Step::Pass),
        1 => (-200_000..200_000_i64).prop_map(Step::Jump),
        3 => Just(Step::LetGo),
    ];
    prop::collection::vec(step, 1..250)
}

fn configs() -> impl Strategy<Value = ReassemblyConfig> {
    (3_000..14_000_usize, 5_000..30_000_usize, 1..5_usize, 2..9_usize, 2..7_usize, 4..16_usize).prop_map(
        |(link_bytes, bytes, link_messages, messages, link_ids, ids)| ReassemblyConfig {
            link_bytes,
            bytes,
            link_messages,
            messages,
            link_ids,
            ids,
            age: Duration::from_secs(250),
        },
    )
}

/// Messages of different sizes, counts and expiries.
fn message(id: u8) -> Sent {
    let mut sent = Sent::new(id, 200 + usize::from(id) * 150, 1 + u32::from(id % 5));
    sent.common.ttl = TTL - u64::from(id) * 20_000;
    sent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn l2_8_the_table_does_what_the_naive_model_does(steps in steps(), config in configs()) {
        let mut table = Table::new(config);
        let mut model = Model { config, gathering: vec![], tombstones: vec![], in_hand: vec![] };
        let mut now = at(0);
        for step in steps {
            match step {
                Step::Chunk { id, index, peer, changed, renamed } => {
                    let mut sent = message(id);
                    let index = index % sent.common.count;
                    if renamed {
                        sent.common.tx_id = TxId([99; 16]);
                    }
                    let mut chunk = sent.chunk(index, [peer; 32]);
                    let mut bytes = chunk.slice.to_vec();
                    bytes[0] ^= u8::from(changed);
                    chunk.slice = &bytes;
                    let expected = model.take(&sent, index, &bytes, [peer; 32], now);
                    let taken = table.take(&chunk, now);
                    let shown = taken.as_ref().map(Option::is_some).map_err(ChunkRefusal::label);
                    prop_assert_eq!(shown, expected, "chunk {} of {} by {}", index, id, peer);
                    if let (Ok(Some(joined)), false) = (taken, changed) {
                        prop_assert_eq!(joined.len(), sent.encoded.len());
                    }
                }
                Step::Pass(ms) => {
                    now = Now { wall: now.wall + ms, monotonic: now.monotonic + Duration::from_millis(ms) };
                    table.purge(now);
                    model.purge(now);
                }
                Step::Jump(ms) => {
                    now.wall = now.wall.saturating_add_signed(ms);
                    table.purge(now);
                    model.purge(now);
                }
                Step::LetGo => {
                    table.let_go(now);
                    model.in_hand.clear();
                }
            }
            prop_assert_eq!(table.held(), (model.bytes(None), model.messages(None), model.ids(None)));
        }
    }

    /// Hostile links copy the honest one's chunks, flood, and fill every bound of their own; they have no key of its origin.
    #[test]
    fn l2_8_hostile_links_cannot_fail_a_message_that_an_honest_link_brings(
        hostile in prop::collection::vec((0..14_u8, 0..5_u32, 0..3_u8), 0..300),
        order in Just((0..8_u32).collect::<Vec<_>>()).prop_shuffle(),
        gaps in prop::collection::vec(0..60_usize, 8),
    ) {
        // Four links, each with an even share of the bytes at least as great as the honest message.
        let config = ReassemblyConfig {
            link_bytes: 9_000,
            bytes: 4 * 6_000,
            link_messages: 3,
            messages: 12,
            link_ids: 20,
            ids: 80,
            age: Duration::from_secs(300),
        };
        let honest = Sent::new(100, 3_000, 8);
        let mut table = Table::new(config);
        let mut hostile = hostile.into_iter();
        let mut whole = None;
        for (index, gap) in order.iter().zip(gaps) {
            for (id, index, peer) in hostile.by_ref().take(gap) {
                // Some are copies of the honest message, faster than itself.
                let sent = if id < 4 { honest.clone() } else { message(id) };
                let index = (index + u32::from(id)) % sent.common.count;
                let taken = table.take(&sent.chunk(index, [50 + peer; 32]), at(0));
                table.let_go(at(0));
                if let Ok(Some(joined)) = taken && id < 4 {
                    prop_assert!(whole.replace(joined).is_none(), "completed twice");
                }
            }
            match table.take(&honest.chunk(*index, ALICE), at(0)) {
                Ok(None) | Err(ChunkRefusal::Repeated { .. }) => {}
                Ok(Some(joined)) => prop_assert!(whole.replace(joined).is_none(), "completed twice"),
                Err(ChunkRefusal::Finished) => prop_assert!(whole.is_some()),
                Err(refusal) => prop_assert!(false, "the honest chunk {index} is refused: {refusal}"),
            }
        }
        prop_assert_eq!(whole, Some(honest.encoded.into()));
    }
}
