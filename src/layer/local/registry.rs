//! Which namespaces delegate their replay protection, and the marks that changes of that leave (law L6.4).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{NAMESPACE_LEN_MAX, NAMESPACES_MAX, Namespace};
use crate::{
    clock::WallMs,
    message::ClassifierId,
    storage::{
        VALUE_MAX,
        guard::{Guard, Guards},
        seal::{SEAL_LEN, seal, unseal},
    },
};

/// The key of the registry's record in the clock table.
pub(crate) const NAMESPACES_KEY: &[u8] = b"namespaces";

const KIND: &str = "admit-one namespaces record 1";

/// Bytes of one namespace's entry: length 1, name, flag 1, registration mark 8, horizon 8, withdrawal mark 8.
const ENTRY_MAX: usize = 1 + NAMESPACE_LEN_MAX + 1 + 3 * 8;

const _: () = assert!(1 + ClassifierId::LEN + 8 + NAMESPACES_MAX * ENTRY_MAX + SEAL_LEN <= VALUE_MAX);

/// All namespaces that a store knows. See the room's docs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::layer) struct Registry {
    classifier: Option<ClassifierId>,
    /// The mark of every namespace, listed or not; 0 for none.
    all: WallMs,
    entries: BTreeMap<Namespace, Entry>,
}

/// One namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Entry {
    /// The mark of its registration, while it is registered.
    since: Option<WallMs>,
    /// Nothing that was admitted link-locally is issued after it.
    horizon: WallMs,
    /// The mark of its withdrawals; 0 for none.
    withdrawn: WallMs,
    /// The greatest issued instant that was admitted link-locally: the horizon where earlier runs admitted, so that no
    /// mark misses those. In memory only.
    reached: WallMs,
}

/// No place for one more namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::layer) struct TooManyNamespaces;

impl Registry {
    /// Whether no namespace was ever registered, so that nothing was ever link-local.
    pub(in crate::layer) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What of `namespace` was issued at or before this is refused, 0 where there is no mark. `None` is a namespace that
    /// cannot be registered.
    pub(in crate::layer) fn mark(&self, namespace: Option<&Namespace>) -> WallMs {
        self.entry(namespace).map_or(self.all, |entry| self.all.max(entry.withdrawn))
    }

    /// The greatest mark of any namespace.
    pub(in crate::layer) fn greatest_mark(&self) -> WallMs {
        self.entries.values().map(|entry| entry.withdrawn).fold(self.all, WallMs::max)
    }

    /// Whether `namespace` is registered, and since before something was issued at `issued`.
    pub(in crate::layer) fn delegates(&self, namespace: &Namespace, issued: WallMs, guards: Guards) -> bool {
        let Some(entry) = self.entries.get(namespace) else { return false };
        match entry.since {
            Some(since) => issued > since || !guards.keep(Guard::RegistrationMark),
            None => !guards.keep(Guard::Registered),
        }
    }

    /// Whether something issued at `issued` lies past what the record covers.
    pub(in crate::layer) fn past_horizon(&self, namespace: &Namespace, issued: WallMs) -> bool {
        self.entry(Some(namespace)).is_none_or(|entry| issued > entry.horizon)
    }

    /// With the horizon moved `ahead` past `issued`.
    pub(in crate::layer) fn extended(&self, namespace: &Namespace, issued: WallMs, ahead: u64) -> Self {
        let mut next = self.clone();
        next.entries.entry(*namespace).or_default().horizon = issued.saturating_add(ahead);
        next
    }

    /// Something issued at `issued` is admitted link-locally.
    pub(in crate::layer) fn reach(&mut self, namespace: &Namespace, issued: WallMs) {
        if let Some(entry) = self.entries.get_mut(namespace) {
            entry.reached = entry.reached.max(issued);
        }
    }

    /// With `namespace` registered since `mark`, unless it is. Nothing lives that was issued at or before `dead`.
    pub(in crate::layer) fn registered(
        &self,
        namespace: Namespace,
        mark: WallMs,
        dead: WallMs,
        guards: Guards,
    ) -> Result<Self, TooManyNamespaces> {
        let mut next = self.clone();
        if !next.entries.contains_key(&namespace) && next.entries.len() >= NAMESPACES_MAX {
            let oldest = next.entries.iter().filter(|(_, entry)| entry.since.is_none() && entry.withdrawn <= dead);
            let (oldest, entry) = oldest.min_by_key(|(_, entry)| entry.withdrawn).ok_or(TooManyNamespaces)?;
            let (oldest, withdrawn) = (*oldest, entry.withdrawn);
            next.all = next.all.max(withdrawn);
            next.entries.remove(&oldest);
        }
        let entry = next.entries.entry(namespace).or_default();
        entry.since = Some(entry.since.unwrap_or(mark));
        if !guards.keep(Guard::MarkSurvives) {
            entry.withdrawn = 0;
        }
        Ok(next)
    }

    /// With `namespace` withdrawn by `mark`, if it is registered.
    pub(in crate::layer) fn withdrawn(&self, namespace: &Namespace, mark: WallMs, guards: Guards) -> Self {
        let mut next = self.clone();
        if let Some(entry) = next.entries.get_mut(namespace).filter(|entry| entry.since.is_some()) {
            entry.since = None;
            entry.withdrawn = entry.withdrawn.max(entry.end(mark, guards));
        }
        next
    }

    /// At the start of a run that registers `named`: what else was registered is withdrawn.
    pub(in crate::layer) fn started(
        &self,
        named: &[Namespace],
        mark: WallMs,
        dead: WallMs,
        guards: Guards,
    ) -> Result<Self, TooManyNamespaces> {
        let absent = self.entries.keys().filter(|namespace| !named.contains(namespace));
        let next = match guards.keep(Guard::StartWithout) {
            true => absent.fold(self.clone(), |next, namespace| next.withdrawn(namespace, mark, guards)),
            false => self.clone(),
        };
        named.iter().try_fold(next, |next, namespace| next.registered(*namespace, mark, dead, guards))
    }

    /// With transactions read by `classifier`, if they were not.
    pub(in crate::layer) fn read_by(&self, classifier: ClassifierId, mark: WallMs, guards: Guards) -> Option<Self> {
        if self.is_empty() || self.classifier == Some(classifier) {
            return None;
        }
        let mut next = self.clone();
        if next.classifier.replace(classifier).is_some() && guards.keep(Guard::ClassifierMark) {
            next.all = next.entries.values().map(|entry| entry.end(mark, guards)).fold(next.all, WallMs::max);
        }
        Some(next)
    }

    /// The namespaces that are registered.
    pub(in crate::layer) fn names(&self) -> impl Iterator<Item = &Namespace> {
        self.entries.iter().filter(|(_, entry)| entry.since.is_some()).map(|(namespace, _)| namespace)
    }

    fn entry(&self, namespace: Option<&Namespace>) -> Option<&Entry> {
        self.entries.get(namespace?)
    }

    /// The record's bytes.
    pub(in crate::layer) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(u8::from(self.classifier.is_some()));
        out.put_slice(self.classifier.unwrap_or_default().as_bytes());
        out.put_u64(self.all);
        for (namespace, entry) in &self.entries {
            let name = namespace.as_bytes();
            // At most NAMESPACE_LEN_MAX, so it fits.
            out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.put_slice(name);
            out.put_u8(u8::from(entry.since.is_some()));
            out.put_u64(entry.since.unwrap_or(0));
            out.put_u64(entry.horizon);
            out.put_u64(entry.withdrawn);
        }
        seal(KIND, out)
    }

    /// Reads [`Registry::encode`] back; `None` where the bytes are no registry's.
    pub(in crate::layer) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = unseal(KIND, bytes)?;
        let known = flag(&mut record)?;
        let (classifier, rest) = record.split_first_chunk::<{ ClassifierId::LEN }>()?;
        record = rest;
        let classifier = known.then_some(ClassifierId::from_bytes(*classifier));
        let mut registry = Self { classifier, all: record.try_get_u64().ok()?, entries: BTreeMap::new() };
        while !record.is_empty() {
            let length = usize::from(record.try_get_u8().ok()?);
            let (name, rest) = record.split_at_checked(length)?;
            record = rest;
            let registered = flag(&mut record)?;
            let since = record.try_get_u64().ok()?;
            let horizon = record.try_get_u64().ok()?;
            let withdrawn = record.try_get_u64().ok()?;
            let entry = Entry { since: registered.then_some(since), horizon, withdrawn, reached: horizon };
            registry.entries.insert(Namespace::new(name).ok()?, entry);
        }
        (registry.entries.len() <= NAMESPACES_MAX).then_some(registry)
    }
}

impl Entry {
    /// The mark that ends a registration: no less than anything that was admitted link-locally under it.
    fn end(&self, mark: WallMs, guards: Guards) -> WallMs {
        if guards.keep(Guard::Horizon) { mark.max(self.reached) } else { mark }
    }
}

fn flag(record: &mut &[u8]) -> Option<bool> {
    match record.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The fuzz target of the record of namespaces.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "namespaces",
    run: |data| {
        let decode = |bytes: &[u8]| {
            let registry = Registry::decode(bytes)?;
            assert!(registry.entries.len() <= NAMESPACES_MAX);
            Some(registry)
        };
        crate::storage::seal::fuzz(KIND, false, data, decode, |registry| {
            // A start without its namespaces lowers no mark.
            let withdrawn = registry.started(&[], 77, 0, Guards::default());
            let withdrawn = withdrawn.unwrap_or_else(|_| panic!("a start without a namespace needs no place"));
            for name in registry.entries.keys() {
                assert!(withdrawn.mark(Some(name)) >= registry.mark(Some(name)));
                assert!(!withdrawn.delegates(name, WallMs::MAX, Guards::default()));
            }
            registry.encode()
        })
    },
    seeds: || {
        let name = |name: &str| Namespace::new(name).unwrap_or_else(|error| panic!("{error}"));
        let none = Registry::default();
        let start = |names: &[Namespace]| none.started(names, 9, 0, Guards::default()).unwrap_or_default();
        let two = start(&[name("chat"), name("")]).extended(&name("chat"), 1_000, 60);
        let read = two.read_by(ClassifierId::of("a classifier"), 20, Guards::default()).unwrap_or_default();
        let one = read.withdrawn(&name("chat"), 30, Guards::default());
        let most: Vec<_> = (0..NAMESPACES_MAX).map(|at| name(&format!("{at:064}"))).collect();
        [none.encode(), two.encode(), read.encode(), one.encode(), start(&most).encode()].map(|it| it.to_vec()).into()
    },
};
