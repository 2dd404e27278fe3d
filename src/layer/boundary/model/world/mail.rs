//! Mail of a world with custody: carriers that name any hold instant, offers, takes, and runs with custody and without.

use super::{Admitted, Fault, World, local::LOCAL_STREAMS};
use crate::{
    layer::boundary::{BoundaryRefusal, Carrier, Request},
    message::Class,
};

/// How many places custody has in a world.
const PLACES: usize = 2;

/// What a world with mail draws apart.
#[derive(Debug)]
pub(super) struct Post {
    /// For how long mail may be held in runs with custody.
    hold: u64,
    /// Whether this store ever ran without: its floor then knows nothing of mail.
    ever_off: bool,
    /// How many places were taken when the process started.
    found: usize,
    /// Whether what is in custody is presented most.
    keen: bool,
}

impl World {
    /// A world with mail.
    pub(in super::super) fn mail(seed: u64, without: super::Without) -> Self {
        let mut world = Self::new(seed, without);
        world.streams = &LOCAL_STREAMS;
        let hold = 4 + world.draw.below(30);
        world.post = Some(Post { hold, ever_off: false, found: 0, keen: matches!(seed % 4, 0 | 3) });
        world
    }

    /// Draws whether a run has custody: mostly.
    pub(super) fn start_mail(&mut self) {
        let Some(post) = &mut self.post else { return };
        self.hold = if self.draw.one_in(6) { 0 } else { post.hold };
        post.ever_off |= self.hold == 0;
    }

    pub(super) fn started_mail(&mut self) {
        let (Some(post), Some(process)) = (&mut self.post, &mut self.process) else { return };
        process.boundary.custody.places = PLACES;
        post.found = process.boundary.custody.held();
    }

    /// A new store has no floor.
    pub(super) fn lose_mail(&mut self) {
        if let Some(post) = &mut self.post {
            post.ever_off = false;
        }
    }

    /// Makes a request mail, half of the times that it can be: held at any instant that a carrier may name.
    pub(super) fn post(&mut self, request: &mut Request) {
        let (Some(post), Some(process)) = (&self.post, &self.process) else { return };
        // Mostly, where it is in custody.
        let here = post.keen && process.boundary.custody.get(&request.digest).is_some();
        let one_in = if here { 6 } else { 2 };
        if request.stream.class != Class::Application || self.draw.one_in(one_in) {
            return;
        }
        let wall = self.real.saturating_add_signed(self.offset);
        let held_at = match self.draw.below(4) {
            // As late as it may be; as early as it may still be presented; now; or within its life.
            0 => request.expires_at().saturating_sub(1),
            1 => wall.saturating_sub(post.hold) + 1,
            2 => wall,
            _ => request.issued_at + self.draw.below(request.ttl + 2),
        };
        request.carrier = Carrier::Inbox { held_at };
    }

    /// Mail that was offered is presented again, in some worlds.
    pub(super) fn remember_mail(&mut self, admitted: &Admitted) {
        if admitted.offer.is_some() && self.post.as_ref().is_some_and(|post| post.keen) {
            self.remember(admitted.request);
        }
    }

    /// Whether mail that a floor refused may be of a stream that was removed by a run without custody.
    pub(super) fn floor_excused(&self, request: &Request) -> bool {
        matches!(request.carrier, Carrier::Inbox { .. }) && self.post.as_ref().is_some_and(|post| post.ever_off)
    }

    /// Mail is offered: to nobody else at the same time.
    pub(super) fn check_offer(&self, admitted: &Admitted) -> Result<(), Fault> {
        let (Some(process), Some(_)) = (&self.process, admitted.offer) else { return Ok(()) };
        let batches = process.flying.iter().chain([&process.gathering]);
        let waiting = batches.flat_map(|batch| &batch.admitted).filter(|other| other.offer.is_some() && !other.taken);
        match waiting.chain(&process.offered).any(|other| other.request.digest == admitted.request.digest) {
            true => Err(Fault::OfferedTwice),
            false => Ok(()),
        }
    }

    /// No more is in custody than may be, except what a restart found of a torn batch.
    pub(super) fn check_custody(&self) -> Result<(), Fault> {
        let (Some(post), Some(process)) = (&self.post, &self.process) else { return Ok(()) };
        match process.boundary.custody.held() <= PLACES.max(post.found) {
            true => Ok(()),
            false => Err(Fault::OverBound),
        }
    }

    /// The application takes some mail, or drops it.
    pub(super) fn step_mail(&mut self) -> Result<(), Fault> {
        let process = self.process.as_mut().unwrap();
        let Some(place) = self.draw.below(4).checked_rem(process.offered.len() as u64) else { return Ok(()) };
        let offered = process.offered.remove(place as usize);
        if self.draw.one_in(3) {
            process.end_offers([offered]);
            return Ok(());
        }
        let taken = self.transition(|boundary, _, stage| boundary.take(&offered.request, stage)).1;
        self.process.as_mut().unwrap().end_offers([offered]);
        match taken {
            Ok(()) => {
                self.tally.taken += 1;
                let taken = Admitted { taken: true, ..offered };
                self.process.as_mut().unwrap().gathering.admitted.push(taken);
                if self.keeps(super::Habit::DispatchAfterDurable) { Ok(()) } else { self.dispatch(taken) }
            }
            Err(BoundaryRefusal::Mail(refusal)) => {
                *self.tally.refused.entry(refusal.label()).or_default() += 1;
                Ok(())
            }
            Err(refusal) => unreachable!("{refusal}"),
        }
    }
}

impl super::Process {
    /// Who held these offers lets go of them.
    pub(super) fn end_offers(&mut self, ended: impl IntoIterator<Item = Admitted>) {
        ended.into_iter().filter_map(|admitted| admitted.offer).for_each(|offer| self.boundary.end_offer(offer));
    }
}
