//! Who signs, what is presented, and how the clock steps where it hurts.

use super::{Draw, Sender, World};
use crate::{
    layer::boundary::{Carrier, Request},
    link::LinkId,
    message::{Incarnation, TransactionDigest},
};

impl World {
    /// Steps the wall clock: anywhere near, or to where something that was dispatched lives again.
    pub(super) fn step_clock(&mut self) {
        match self.draw.pick(&self.recent).copied() {
            Some(request) if self.draw.one_in(2) => {
                let wall = request.issued_at + self.draw.below(request.ttl + 6) - 2;
                self.offset = wall as i64 - self.real as i64;
            }
            _ => self.offset += self.draw.below(61) as i64 - 30,
        }
    }

    /// Signs something: an honest sender its next transaction, or the adversary what it likes.
    pub(super) fn sign(&mut self) {
        let place = self.draw.below(self.streams.len() as u64) as usize;
        let most = *self.weather.ttls.iter().max().unwrap();
        let greatest = if self.draw.one_in(2) { self.config.greatest_ttl } else { most };
        let mut request = Request {
            stream: self.streams[place],
            incarnation: Incarnation(0),
            sequence: 0,
            digest: TransactionDigest([0; 32]),
            issued_at: 0,
            carrier: Carrier::Own,
            ttl: if self.draw.one_in(3) { 1 + self.draw.below(greatest) } else { greatest },
            bytes: 0,
            application: None,
        };
        let sender = &mut self.senders[place];
        if self.draw.below(4) < self.weather.honest {
            let clock = self.real.wrapping_add_signed(sender.offset);
            if self.draw.one_in(16) {
                let ms = clock.max(sender.incarnation.wall() + 1);
                *sender = Sender { incarnation: Incarnation::new(ms, self.draw.next() as u16), next: 0, ..*sender };
            }
            sender.next += 1 + if self.draw.one_in(12) { self.draw.below(64) } else { 0 };
            request.incarnation = sender.incarnation;
            request.sequence = sender.next;
            request.issued_at = clock;
        } else {
            let near = |draw: &mut Draw, around: u64, by: u64| around + draw.below(2 * by + 1) - by;
            let wall = self.real.saturating_add_signed(self.offset);
            let ms = near(&mut self.draw, wall, 30);
            request.incarnation =
                if self.draw.one_in(2) { sender.incarnation } else { Incarnation::new(ms, self.draw.next() as u16) };
            request.sequence = if self.draw.one_in(2) { sender.next } else { self.draw.below(80) };
            let around = if self.draw.one_in(2) { wall } else { self.real };
            let by = if self.draw.one_in(6) { 30 } else { self.config.sigma };
            request.issued_at = near(&mut self.draw, around, by);
            if self.draw.one_in(8) {
                request.ttl = 1 + self.draw.below(60);
            }
        }
        request.digest.0[..8].copy_from_slice(&self.draw.next().to_be_bytes());
        self.signed.push(request);
    }

    /// What brings a request of a world with small shares, and how its links come and go.
    pub(super) fn carrier(&mut self) -> Carrier {
        let Some(draw) = &mut self.carriers else { return Carrier::Own };
        let link = |draw: &mut Draw| LinkId::of(draw.below(4));
        if let Some(process) = &mut self.process {
            match draw.below(6) {
                0 => drop(process.boundary.open_link(link(draw))),
                1 => process.boundary.retire_link(&link(draw)),
                _ => {}
            }
        }
        match draw.below(8) {
            0 | 1 => Carrier::Own,
            _ => Carrier::Link(link(draw)),
        }
    }

    /// Chooses what to present, mostly something that may live.
    pub(super) fn choose(&mut self) -> Option<Request> {
        let wall = self.real.saturating_add_signed(self.offset);
        for _ in 0..5 {
            let from = match self.draw.below(10) {
                0 => &self.signed,
                7.. if !self.before_loss.is_empty() => &self.before_loss,
                1..=4 => &self.signed[self.signed.len().saturating_sub(8)..],
                _ => &self.recent,
            };
            let chosen = self.draw.pick(from).copied();
            let lives = |request: &Request| request.issued_at <= wall + 4 && wall < request.expires_at();
            if chosen.is_some_and(|chosen| {
                self.draw.one_in(16) || (lives(&chosen) && chosen.ttl <= self.config.greatest_ttl)
            }) {
                return chosen;
            }
        }
        self.sign();
        self.signed.last().copied()
    }
}
