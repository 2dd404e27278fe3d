//! Links, namespaces and classifiers of a local world, and what a namespace promises.

use std::{collections::HashSet, sync::LazyLock};

use super::{Admitted, Fault, STREAMS, World};
use crate::{
    layer::{
        boundary::{Application, Request},
        local::{NAMESPACES_KEY, Namespace, Registry},
    },
    link::LinkId,
    message::{Class, ClassifierId, StreamKey, TransactionDigest},
    storage::Table,
};

/// How far a horizon is moved in a world.
pub(super) const AHEAD: u64 = 8;

/// Two streams of class Application, and one of another.
pub(super) static LOCAL_STREAMS: LazyLock<[StreamKey; 3]> = LazyLock::new(|| {
    let [one, two, other] = *STREAMS;
    [StreamKey { class: Class::Application, ..one }, StreamKey { class: Class::Application, ..two }, other]
});

/// A namespace, and which of its registrations, counted over all stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registration {
    namespace: usize,
    number: u64,
}

/// The links and registrations of a local world.
#[derive(Debug, Default)]
pub(super) struct Locality {
    links: [Option<LinkId>; 2],
    opened: u64,
    /// Which of two classifiers reads in this run: the second takes one namespace for the other.
    classifier: usize,
    /// How many registrations of each namespace have ended, durably.
    ended: [u64; 2],
    by_link: HashSet<(LinkId, TransactionDigest)>,
}

fn name(namespace: usize) -> Namespace {
    Namespace::new([b'a' + namespace as u8]).unwrap()
}

impl World {
    /// A world with links and registrations.
    pub(in super::super) fn local(seed: u64, without: super::Without) -> Self {
        let mut world = Self::new(seed, without);
        world.streams = &LOCAL_STREAMS;
        world.local = Some(Locality::default());
        world
    }

    /// Draws a run's classifier, opens its links, and draws what it starts with.
    pub(super) fn start_local(&mut self) -> Vec<Namespace> {
        if self.local.is_none() {
            return Vec::new();
        }
        let before = self.registry();
        let local = self.local.as_mut().unwrap();
        if self.draw.one_in(4) {
            local.classifier = 1 - local.classifier;
        }
        (0..2).for_each(|place| self.open_link(place));
        let mut named = Vec::new();
        for namespace in 0..2 {
            // Mostly as it was.
            if before.names().any(|known| *known == name(namespace)) != self.draw.one_in(5) {
                named.push(name(namespace));
            } else {
                self.process.as_mut().unwrap().gathering.ended[namespace] = true;
            }
        }
        named
    }

    fn open_link(&mut self, place: usize) {
        let local = self.local.as_mut().unwrap();
        local.opened += 1;
        let next = LinkId::of(local.opened);
        let before = local.links[place].replace(next);
        let boundary = &mut self.process.as_mut().unwrap().boundary;
        if let Some(before) = before {
            boundary.retire_windows(&before);
        }
        boundary.open_windows(next);
    }

    /// Somebody is handed over, most often; or a link goes, or a registration changes.
    pub(super) fn step_local(&mut self) -> Result<(), Fault> {
        let namespace = self.draw.below(2) as usize;
        match self.draw.below(12) {
            0 => self.open_link(namespace),
            1 => {
                let name = name(namespace);
                self.transition(|boundary, reading, stage| boundary.register(name, reading, stage)).1.unwrap();
            }
            2 if self.draw.one_in(2) => {
                let name = name(namespace);
                self.transition(|boundary, reading, stage| boundary.withdraw(&name, reading, stage)).1.unwrap();
                self.process.as_mut().unwrap().gathering.ended[namespace] = true;
            }
            _ => {
                let process = self.process.as_mut().unwrap();
                let Some(place) = self.draw.below(4).checked_rem(process.ready.len() as u64) else { return Ok(()) };
                let admitted = process.ready.remove(place as usize);
                match process.boundary.hand_over(&admitted.request) {
                    Ok(()) => return self.dispatch(admitted),
                    Err(_) => *self.tally.refused.entry("dropped").or_default() += 1,
                }
            }
        }
        Ok(())
    }

    /// The connection that it comes on, and how its data is read in this run. Anybody may relay anything, and who holds
    /// a key sends as its own.
    pub(super) fn carry(&mut self, request: &mut Request) {
        let Some(local) = &self.local else { return };
        if request.stream.class != Class::Application {
            return;
        }
        let own_link = self.draw.pick(&local.links).copied().flatten();
        request.application = Some(Application {
            classifier: ClassifierId::of(["first", "second"][local.classifier]),
            namespace: Some(name(namespace(request, local.classifier))),
            own_link: own_link.filter(|_| !self.draw.one_in(3)),
        });
    }

    pub(super) fn mark_of_all(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| process.boundary.local.registry.mark(None))
    }

    /// Registrations ended durably.
    pub(super) fn end(&mut self, ended: [bool; 2]) {
        if let Some(local) = &mut self.local {
            local.ended.iter_mut().zip(ended).for_each(|(number, ended)| *number += u64::from(ended));
        }
    }

    /// Under which registration the namespace would know `request` if it comes again.
    pub(super) fn registration(&self, request: &Request) -> Option<Registration> {
        let local = self.local.as_ref()?;
        request.application?;
        let namespace = namespace(request, local.classifier);
        let registered = self.registry().names().any(|known| *known == name(namespace));
        registered.then_some(Registration { namespace, number: local.ended[namespace] })
    }

    pub(super) fn dispatch_on_link(&mut self, admitted: &Admitted) -> Result<(), Fault> {
        let link = admitted.request.application.and_then(|application| application.own_link);
        let (Some(local), Some(link), true) = (&mut self.local, link, admitted.link_local) else { return Ok(()) };
        match local.by_link.insert((link, admitted.request.digest)) {
            true => Ok(()),
            false => Err(Fault::TwiceOnOneLink),
        }
    }

    /// What the disk says of registrations.
    fn registry(&self) -> Registry {
        let record = self.disk.value(Table::Clock, NAMESPACES_KEY);
        record.and_then(|record| Registry::decode(record)).unwrap_or_default()
    }
}

fn namespace(request: &Request, classifier: usize) -> usize {
    (usize::from(request.digest.0[0]) + classifier) % 2
}
