//! A directory in memory that records what is done to it and fails when told to. What a crash may leave of it says
//! [`Medium`]. A mock, for the faults' sake: everything that decides is the real code.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;

use super::{Directory, enumerate::Medium};
use crate::storage::{Batch, Table, Write};

/// What a medium writes whole or not at all, in bytes.
pub(in crate::storage) const SECTOR: usize = 512;

/// What files hold, by name.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// Records by table and key: what a store should hold.
pub(crate) type Model = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// One thing done to the directory.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create {
        name: String,
        inode: usize,
    },
    /// Cut to nothing.
    Truncate {
        inode: usize,
    },
    Write {
        inode: usize,
        offset: usize,
        bytes: Bytes,
    },
    Flush {
        inode: usize,
    },
    /// What was pending is on the medium, or not, for good: no later flush says.
    FailedFlush {
        inode: usize,
    },
    Rename {
        from: String,
        to: String,
        inode: usize,
    },
    Remove {
        name: String,
    },
    FlushNames,
    /// As with a file's: no later flush says.
    FailedFlushNames,
}

#[derive(Debug, Default)]
struct World {
    names: BTreeMap<String, usize>,
    inodes: BTreeMap<usize, Vec<u8>>,
    /// Numbers below were given.
    next: usize,
    operations: Vec<Operation>,
    /// Counts what could fail: everything but reading.
    attempts: usize,
    fail: Fail,
}

/// When an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::storage) enum Fail {
    #[default]
    Never,
    /// The next flush of a segment in use, once.
    NextFlush,
    /// The attempt of this number, once.
    At(usize),
    /// From now on, every write, as on a full disk.
    Writes,
    /// Every attempt from this number on.
    From(usize),
    /// From now on, every one.
    Always,
}

/// The mock. Clones share the directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Simulated {
    world: Arc<Mutex<World>>,
}

impl Simulated {
    /// A directory that durably holds `image`, and what was done to it since: nothing.
    pub(crate) fn holding(image: &Image) -> Self {
        Self::running(&Medium::holding(image))
    }

    /// What another process finds while the machine runs on: what was written, flushed or not.
    pub(crate) fn running(medium: &Medium) -> Self {
        let (names, inodes) = medium.now();
        let next = inodes.last_key_value().map_or(0, |(inode, _)| inode + 1);
        let world = World { names, inodes, next, ..World::default() };
        Self { world: Arc::new(Mutex::new(world)) }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test panics inside")
    }

    pub(in crate::storage) fn fail(&self, fail: Fail) {
        self.world().fail = fail;
    }

    pub(in crate::storage) fn attempts(&self) -> usize {
        self.world().attempts
    }

    pub(crate) fn done(&self) -> usize {
        self.world().operations.len()
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.world().operations.clone()
    }

    /// What the files hold as long as the machine runs.
    pub(crate) fn image(&self) -> Image {
        let world = self.world();
        world.names.iter().map(|(name, inode)| (name.clone(), world.inodes[inode].clone())).collect()
    }
}

impl Simulated {
    /// How many bytes the files take.
    pub(in crate::storage) fn bytes(&self) -> usize {
        let world = self.world();
        world.names.values().map(|inode| world.inodes[inode].len()).sum()
    }
}

impl World {
    fn attempt(&mut self, flush_in_use: bool) -> io::Result<()> {
        let attempt = self.attempts;
        self.attempts += 1;
        let fails = match self.fail {
            Fail::Never | Fail::Writes => false,
            Fail::NextFlush => flush_in_use,
            Fail::At(at) => at == attempt,
            Fail::From(at) => at <= attempt,
            Fail::Always => true,
        };
        if !fails {
            return Ok(());
        }
        if matches!(self.fail, Fail::NextFlush | Fail::At(_)) {
            self.fail = Fail::Never;
        }
        Err(io::Error::other("injected"))
    }

    fn insert(&mut self, name: &str) -> usize {
        let inode = self.next;
        self.next += 1;
        self.inodes.insert(inode, Vec::new());
        self.names.insert(name.to_owned(), inode);
        self.operations.push(Operation::Create { name: name.to_owned(), inode });
        inode
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Directory for Simulated {
    type File = usize;

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }

    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.world().names.keys().cloned().collect())
    }

    fn read(&mut self, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        let world = self.world();
        let content = &world.inodes[world.names.get(name).ok_or_else(missing)?];
        Ok(content[..limit.min(content.len())].to_vec())
    }

    fn create(&mut self, name: &str) -> io::Result<usize> {
        let mut world = self.world();
        world.attempt(false)?;
        let Some(inode) = world.names.get(name).copied() else { return Ok(world.insert(name)) };
        world.inodes.insert(inode, Vec::new());
        world.operations.push(Operation::Truncate { inode });
        Ok(inode)
    }

    fn open(&mut self, name: &str) -> io::Result<usize> {
        let mut world = self.world();
        world.attempt(false)?;
        let found = world.names.get(name).copied();
        Ok(found.unwrap_or_else(|| world.insert(name)))
    }

    fn write_at(&mut self, file: &usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.world();
        let offset = usize::try_from(offset).expect("small");
        let full = world.fail == Fail::Writes;
        let result =
            world.attempt(false).and_then(|()| if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) });
        // A write that fails may have begun.
        let bytes = if result.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        write(world.inodes.get_mut(file).expect("it was opened"), offset, bytes);
        world.operations.push(Operation::Write { inode: *file, offset, bytes: Bytes::copy_from_slice(bytes) });
        result
    }

    fn sync_data(&mut self, file: &usize) -> io::Result<()> {
        let mut world = self.world();
        let inode = *file;
        let in_use = world.names.iter().any(|(name, of)| *of == inode && name.ends_with(".log"));
        let result = world.attempt(in_use);
        world.operations.push(match result {
            Ok(()) => Operation::Flush { inode },
            Err(_) => Operation::FailedFlush { inode },
        });
        result
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        world.attempt(false)?;
        let inode = world.names.remove(from).ok_or_else(missing)?;
        world.names.insert(to.to_owned(), inode);
        world.operations.push(Operation::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut world = self.world();
        world.attempt(false)?;
        world.names.remove(name).ok_or_else(missing)?;
        world.operations.push(Operation::Remove { name: name.to_owned() });
        Ok(())
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let mut world = self.world();
        let result = world.attempt(false);
        world.operations.push(match result {
            Ok(()) => Operation::FlushNames,
            Err(_) => Operation::FailedFlushNames,
        });
        result
    }
}

/// SplitMix64: the same numbers for the same seed.
pub(in crate::storage) struct Random(pub(in crate::storage) u64);

impl Random {
    pub(in crate::storage) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    pub(in crate::storage) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(in crate::storage) fn coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    /// A batch of up to `most` writes over `keys` keys a table; values are its own.
    pub(in crate::storage) fn batch(&mut self, most: usize, keys: usize) -> Batch {
        let mut writes = BTreeMap::new();
        for _ in 0..1 + self.below(most) {
            let table = Table::ALL[self.below(3)];
            let key = format!("key-{}", self.below(keys));
            let mut value = vec![self.next() as u8; self.below(1_500)];
            value.extend_from_slice(&self.next().to_le_bytes());
            let value = (self.below(5) > 0).then(|| Bytes::from(value));
            writes.insert((table, key.clone()), Write { table, key: key.into(), value });
        }
        Batch { writes: writes.into_values().collect() }
    }
}

/// Puts a batch into the model.
pub(in crate::storage) fn apply(model: &mut Model, batch: &Batch) {
    for Write { table, key, value } in &batch.writes {
        match value {
            Some(value) => model.insert((*table, key.to_vec()), value.to_vec()),
            None => model.remove(&(*table, key.to_vec())),
        };
    }
}
