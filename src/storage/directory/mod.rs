//! The file operations that engines of files are made of, and the disk that does them.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

#[cfg(test)]
pub(crate) mod enumerate;
#[cfg(test)]
pub(crate) mod simulated;

/// The files of one directory. Tests put a recording or failing one in the place of the disk.
pub(in crate::storage) trait Directory: fmt::Debug + Send + 'static {
    /// An open file.
    type File: fmt::Debug + Send + 'static;

    /// The path of a file, or of the directory for an empty name.
    fn path(&self, name: &str) -> PathBuf;
    /// Makes the directory if it is missing.
    fn prepare(&mut self) -> io::Result<()>;
    /// Takes the lock on the file of that name, made if missing, until this value is dropped; `WouldBlock` where another
    /// owns it.
    fn lock(&mut self, name: &str) -> io::Result<()>;
    /// The names in the directory.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// A file's content, or its first `limit` bytes.
    fn read(&mut self, name: &str, limit: usize) -> io::Result<Vec<u8>>;
    /// An empty file, whatever was there.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;
    /// A file to be overwritten in place, made if missing.
    fn open(&mut self, name: &str) -> io::Result<Self::File>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Flushes a file's content, and what of its metadata is needed to read it.
    fn sync_data(&mut self, file: &Self::File) -> io::Result<()>;
    /// Gives a file another name, over whatever has it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Flushes the names in the directory.
    fn sync_dir(&mut self) -> io::Result<()>;
}

/// A file operation that the system refused.
#[derive(Debug)]
pub(in crate::storage) struct Failure {
    pub(in crate::storage) action: &'static str,
    pub(in crate::storage) path: PathBuf,
    pub(in crate::storage) source: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.action, self.path.display(), self.source)
    }
}

/// Names what was attempted when it failed.
pub(in crate::storage) trait Attempt<T> {
    fn attempt<D: Directory>(self, action: &'static str, directory: &D, name: &str) -> Result<T, Failure>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt<D: Directory>(self, action: &'static str, directory: &D, name: &str) -> Result<T, Failure> {
        self.map_err(|source| Failure { action, path: directory.path(name), source })
    }
}

/// A directory on disk.
#[derive(Debug)]
pub(in crate::storage) struct Disk {
    directory: PathBuf,
    lock: Option<File>,
}

impl Disk {
    /// `directory` is absolute.
    pub(in crate::storage) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), lock: None }
    }
}

impl Directory for Disk {
    type File = File;

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.directory.clone() } else { self.directory.join(name) }
    }

    fn prepare(&mut self) -> io::Result<()> {
        let missing: Vec<_> = self.directory.ancestors().take_while(|path| !path.is_dir()).collect();
        fs::create_dir_all(&self.directory)?;
        // The name of every directory that was made must survive too.
        missing.iter().filter_map(|made| made.parent()).try_for_each(sync_directory)?;
        // Who made it before may have died before this. Its parent may be another's, and need not be readable.
        if missing.is_empty()
            && let Some(Err(error)) = self.directory.parent().map(sync_directory)
        {
            tracing::warn!(path = %self.directory.display(), %error, "the name of the store's directory was not flushed");
        }
        Ok(())
    }

    fn lock(&mut self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        self.lock = Some(file);
        Ok(())
    }

    fn list(&mut self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&mut self, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        use io::Read;
        let file = File::open(self.path(name))?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(limit);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&mut self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self.path(name))
    }

    fn open(&mut self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).open(self.path(name))
    }

    #[cfg(unix)]
    fn write_at(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
    }

    #[cfg(not(unix))]
    fn write_at(&mut self, mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        use io::{Seek, Write};
        file.seek(io::SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    fn sync_data(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        sync_directory(&self.directory)
    }
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Where a directory cannot be opened as a file, its names are flushed by the file system's own journal.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
