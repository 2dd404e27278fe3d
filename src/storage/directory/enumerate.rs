//! What a crash may leave of a directory: every state where they are few, seeded samples where they are not.
//!
//! # Model
//! - **Content.** A file is sectors of [`SECTOR`] bytes. After a crash a sector that was written since its file's last
//!   flush is what it was before, or what any write since made of it; each sector by itself, whatever the order of the
//!   writes, as a page cache writes back what it likes. A sector is never mixed of two.
//! - **Length.** It is what it was, what any write or cut since made of it, or any sector's end between. A sector
//!   within it whose first content was lost is zeros, or is stale: what another file left there.
//! - **Names.** POSIX orders no two changes of a directory before the directory is flushed, and promises of none that it
//!   is atomic over a crash. So each *entry* that was made, overwritten or removed is a change of its own, and any
//!   subset survives: a rename leaves the old name, the new one, both or neither. (A journaling file system keeps them
//!   in order and each whole, which is some of these subsets.) A file's flush makes no name durable, nor does a
//!   directory's any content.
//! - **Failed flushes.** What was pending is on the medium or not, for good: a later flush of the file says nothing of
//!   it, unless the sector or entry was written again. Until the page is dropped ([`Medium::evict`]) the machine reads
//!   what it wrote.
//!
//! Not modelled: a sector that is torn or changes when it is not written, and a device that lies about a flush.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::simulated::{Image, Operation, Random, SECTOR};

/// The states of 10 unflushed sectors.
pub(crate) const EXHAUSTIVE: usize = 1 << 10;
/// What a stale sector holds.
const STALE: u8 = 0xA5;

/// A sector that holds something; `None` was never written.
type Sector = Option<Arc<[u8; SECTOR]>>;
type Names = BTreeMap<String, usize>;

/// A value and what it may be instead after a crash.
#[derive(Debug, Clone)]
struct Cell<T> {
    now: T,
    others: Vec<T>,
    /// Changed since the last flush, whether that failed or not.
    dirty: bool,
}

impl<T: PartialEq> Cell<T> {
    fn durable(now: T) -> Self {
        Self { now, others: Vec::new(), dirty: false }
    }

    fn set(&mut self, value: T) {
        self.dirty = true;
        if value != self.now {
            self.others.retain(|other| *other != value);
            self.others.push(std::mem::replace(&mut self.now, value));
        }
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.others.clear();
        }
    }

    fn option(&self, option: usize) -> &T {
        option.checked_sub(1).map_or(&self.now, |other| &self.others[other])
    }

    /// Its page is read back from the medium, which holds one or the other.
    fn evict(&mut self, random: &mut Random) {
        if !self.dirty && !self.others.is_empty() {
            let option = random.below(self.others.len() + 1);
            if let Some(other) = option.checked_sub(1) {
                self.now = self.others.swap_remove(other);
            }
            self.others.clear();
        }
    }
}

#[derive(Debug, Clone)]
struct File {
    length: Cell<usize>,
    sectors: Vec<Cell<Sector>>,
}

impl File {
    fn new() -> Self {
        Self { length: Cell::durable(0), sectors: Vec::new() }
    }

    fn holding(content: &[u8]) -> Self {
        let mut file = Self::new();
        file.write(0, content);
        file.flush();
        file
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return;
        }
        while self.sectors.len() * SECTOR < end {
            self.sectors.push(Cell::durable(None));
        }
        for at in offset / SECTOR..end.div_ceil(SECTOR) {
            let mut sector = self.sectors[at].now.as_deref().copied().unwrap_or([0; SECTOR]);
            let (from, to) = (offset.max(at * SECTOR), end.min((at + 1) * SECTOR));
            sector[from - at * SECTOR..to - at * SECTOR].copy_from_slice(&bytes[from - offset..to - offset]);
            self.sectors[at].set(Some(Arc::new(sector)));
        }
        if end > self.length.now {
            self.length.set(end);
        } else if self.length.others.iter().any(|other| *other < end) {
            // What lies beyond the length on the medium cannot be flushed without it.
            self.length.dirty = true;
        }
    }

    fn truncate(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.set(None));
        self.length.set(0);
    }

    fn flush(&mut self) {
        self.sectors.iter_mut().for_each(Cell::flush);
        self.length.flush();
    }

    fn fail(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.dirty = false);
        self.length.dirty = false;
    }

    fn now(&self) -> Vec<u8> {
        self.content(&Kept { length: self.length.now, sectors: Vec::new() }, false)
    }

    fn content(&self, kept: &Kept, stale: bool) -> Vec<u8> {
        let mut content = vec![0; self.sectors.len() * SECTOR];
        let mut changed = kept.sectors.iter().peekable();
        for (at, (cell, room)) in self.sectors.iter().zip(content.chunks_mut(SECTOR)).enumerate() {
            let option = changed.next_if(|(sector, _)| *sector == at).map_or(0, |(_, option)| *option);
            match cell.option(option) {
                Some(sector) => room.copy_from_slice(&**sector),
                None if stale && option > 0 => room.fill(STALE),
                None => {}
            }
        }
        content.resize(kept.length, 0);
        content
    }

    /// Its lengths, the running machine's first.
    fn lengths(&self) -> Vec<usize> {
        let all = || self.length.others.iter().chain([&self.length.now]).copied();
        let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        let between = (least / SECTOR + 1..most.div_ceil(SECTOR)).map(|sectors| sectors * SECTOR);
        let mut others: BTreeSet<usize> = self.length.others.iter().copied().chain(between).collect();
        others.remove(&self.length.now);
        if self.length.others.is_empty() {
            others.clear();
        }
        [self.length.now].into_iter().chain(others).collect()
    }

    /// The sectors that may be something else after a crash, and how many things they may be.
    fn uncertain(&self) -> impl Iterator<Item = (usize, usize)> {
        let sectors = self.sectors.iter().enumerate().filter(|(_, cell)| !cell.others.is_empty());
        sectors.map(|(at, cell)| (at, cell.others.len() + 1))
    }
}

/// What is left of one file: its length, and the sectors that are not as the running machine had them, by option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    length: usize,
    sectors: Vec<(usize, usize)>,
}

/// One state that a crash may leave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crash {
    names: Names,
    files: BTreeMap<usize, Kept>,
    stale: bool,
}

/// The states of one crash point.
pub(crate) struct States {
    /// No two are the same.
    pub(crate) crashes: Vec<Crash>,
    /// These are all that there are.
    pub(crate) all: bool,
}

/// A directory's entry that was made, overwritten or removed.
#[derive(Debug, Clone)]
struct Change {
    name: String,
    inode: Option<usize>,
    /// A flush failed on it.
    unknown: bool,
}

/// The medium below a directory: what is durable, and what may be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Medium {
    names: Names,
    changes: Vec<Change>,
    files: BTreeMap<usize, File>,
}

impl Medium {
    pub(crate) fn holding(image: &Image) -> Self {
        let names = image.keys().cloned().zip(0..).collect();
        let files = (0..).zip(image.values().map(|content| File::holding(content))).collect();
        Self { names, files, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        let mut change = |name: &String, inode| self.changes.push(Change { name: name.clone(), inode, unknown: false });
        match operation {
            Operation::Create { name, inode } => {
                change(name, Some(*inode));
                self.files.insert(*inode, File::new());
            }
            Operation::Rename { from, to, inode } => {
                change(to, Some(*inode));
                change(from, None);
            }
            Operation::Remove { name } => change(name, None),
            Operation::FlushNames => {
                let flushed: Vec<_> = self.changes.extract_if(.., |change| !change.unknown).collect();
                for Change { name, inode, .. } in flushed {
                    put(&mut self.names, &name, inode);
                    self.changes.retain(|unknown| unknown.name != name);
                }
            }
            Operation::FailedFlushNames => self.changes.iter_mut().for_each(|change| change.unknown = true),
            Operation::Truncate { inode } => self.file(*inode).truncate(),
            Operation::Write { inode, offset, bytes } => self.file(*inode).write(*offset, bytes),
            Operation::Flush { inode } => self.file(*inode).flush(),
            Operation::FailedFlush { inode } => self.file(*inode).fail(),
        }
    }

    fn file(&mut self, inode: usize) -> &mut File {
        self.files.get_mut(&inode).expect("it was made")
    }

    /// What the running machine reads.
    pub(crate) fn now(&self) -> (Names, BTreeMap<usize, Vec<u8>>) {
        let names = self.entries(&vec![true; self.changes.len()]);
        (names, self.files.iter().map(|(inode, file)| (*inode, file.now())).collect())
    }

    /// Drops from memory what a failed flush left there: the machine now reads what the medium holds.
    pub(crate) fn evict(&mut self, seed: u64) {
        let random = &mut Random(seed);
        for file in self.files.values_mut() {
            file.sectors.iter_mut().for_each(|sector| sector.evict(random));
            file.length.evict(random);
        }
    }

    /// The states that a crash may leave now: all of them if they are at most `whole`, stale ones not counted, and
    /// [`Medium::some_states`] otherwise.
    pub(crate) fn states(&self, whole: usize, samples: usize, seed: u64) -> States {
        match self.every(whole) {
            Some(crashes) => States { crashes, all: true },
            None => States { crashes: self.some_states(samples, seed), all: false },
        }
    }

    /// So many different states, or as many as are found, drawn by the seed: the four corners are always among them.
    pub(crate) fn some_states(&self, samples: usize, seed: u64) -> Vec<Crash> {
        let mut random = Random(seed);
        let mut seen = BTreeSet::new();
        for (names, content) in [(false, false), (true, true), (true, false), (false, true)] {
            seen.insert(self.draw(
                &mut |count, _| vec![names; count],
                &mut |count, _| vec![content; count],
                &mut random,
            ));
        }
        for _ in 0..4 * samples {
            if seen.len() >= samples {
                break;
            }
            seen.insert(self.draw(&mut survivors, &mut survivors, &mut random));
        }
        seen.into_iter().collect()
    }

    pub(crate) fn image(&self, crash: &Crash) -> Image {
        let content = |inode| self.files[inode].content(&crash.files[inode], crash.stale);
        crash.names.iter().map(|(name, inode)| (name.clone(), content(inode))).collect()
    }

    fn entries(&self, kept: &[bool]) -> Names {
        let mut names = self.names.clone();
        for (change, _) in self.changes.iter().zip(kept).filter(|(_, kept)| **kept) {
            put(&mut names, &change.name, change.inode);
        }
        names
    }

    fn every(&self, most: usize) -> Option<Vec<Crash>> {
        let subsets = 1_usize.checked_shl(self.changes.len().try_into().ok()?).filter(|count| *count <= most)?;
        let kept = |subset: usize| (0..self.changes.len()).map(|at| subset >> at & 1 == 1).collect::<Vec<_>>();
        let names: BTreeSet<Names> = (0..subsets).map(|subset| self.entries(&kept(subset))).collect();
        let mut total = 0_usize;
        for names in &names {
            let product = self.radices(names).iter().try_fold(1_usize, |all, one| all.checked_mul(*one))?;
            total = total.checked_add(product).filter(|total| *total <= most)?;
        }
        let mut seen = BTreeSet::new();
        for names in names {
            let radices = self.radices(&names);
            let product: usize = radices.iter().product();
            for number in 0..product {
                for stale in [false, true] {
                    let mut rest = number;
                    let mut digits = radices.iter().map(|radix| {
                        let digit = rest % radix;
                        rest /= radix;
                        digit
                    });
                    seen.insert(self.crash(names.clone(), &mut digits, stale));
                }
            }
        }
        Some(seen.into_iter().collect())
    }

    fn reached(&self, names: &Names) -> BTreeMap<usize, &File> {
        names.values().map(|inode| (*inode, &self.files[inode])).collect()
    }

    /// How many options there are for each length and each uncertain sector of the files that have a name.
    fn radices(&self, names: &Names) -> Vec<usize> {
        let of = |file: &File| -> Vec<usize> {
            [file.lengths().len()].into_iter().chain(file.uncertain().map(|(_, options)| options)).collect()
        };
        self.reached(names).into_values().flat_map(of).collect()
    }

    fn draw(
        &self,
        of_names: &mut dyn FnMut(usize, &mut Random) -> Vec<bool>,
        of_content: &mut dyn FnMut(usize, &mut Random) -> Vec<bool>,
        random: &mut Random,
    ) -> Crash {
        let names = self.entries(&of_names(self.changes.len(), random));
        let radices = self.radices(&names);
        let kept = of_content(radices.len(), random);
        let digits = radices.iter().zip(kept);
        let digits = digits.map(|(radix, kept)| if kept || *radix == 1 { 0 } else { 1 + random.below(radix - 1) });
        let digits: Vec<_> = digits.collect();
        self.crash(names, &mut digits.into_iter(), random.below(4) == 0)
    }

    /// The state of these digits, one for each radix, without what cannot be seen in it.
    fn crash(&self, names: Names, digits: &mut dyn Iterator<Item = usize>, stale: bool) -> Crash {
        let mut next = || digits.next().expect("a digit for each radix");
        let (mut files, mut seen_stale) = (BTreeMap::new(), false);
        for (inode, file) in self.reached(&names) {
            let length = file.lengths()[next()];
            let sectors: Vec<_> = file.uncertain().map(|(at, _)| (at, next())).collect();
            let seen = |(at, option): &(usize, usize)| *option > 0 && at * SECTOR < length;
            let sectors: Vec<_> = sectors.into_iter().filter(seen).collect();
            seen_stale |= sectors.iter().any(|(at, option)| file.sectors[*at].option(*option).is_none());
            files.insert(inode, Kept { length, sectors });
        }
        Crash { names, files, stale: stale && seen_stale }
    }
}

fn put(names: &mut Names, name: &str, inode: Option<usize>) {
    match inode {
        Some(inode) => drop(names.insert(name.to_owned(), inode)),
        None => drop(names.remove(name)),
    }
}

/// Which of `count` changes survive: the first ones, all or none but one, or each by a coin of some bias. Coins alone
/// would hardly ever lose one of many.
fn survivors(count: usize, random: &mut Random) -> Vec<bool> {
    match random.below(4) {
        0 => {
            let until = random.below(count + 1);
            (0..count).map(|at| at < until).collect()
        }
        1 => {
            let (odd, rest) = (random.below(count.max(1)), random.coin());
            (0..count).map(|at| (at != odd) == rest).collect()
        }
        _ => {
            let bias = [1, 4, 8, 12, 15][random.below(5)];
            (0..count).map(|_| random.below(16) < bias).collect()
        }
    }
}
