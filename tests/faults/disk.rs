//! Disks of a few megabytes, mounted for one test.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Runs a command, and says what it said where it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let said = |output: Output| match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    };
    Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}")).and_then(said)
}

/// A file system of its own, unmounted when dropped.
pub(crate) struct Disk {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Disk {
    /// In memory, of so many kilobytes.
    pub(crate) fn in_memory(kilobytes: u64) -> Result<Self, String> {
        let size = format!("size={kilobytes}k");
        Self::mount(|_| Ok(()), &["-t", "tmpfs", "-o", &size, "tmpfs"])
    }

    /// ext4 in a file.
    pub(crate) fn ext4(megabytes: u64) -> Result<Self, String> {
        let make = |image: &str| {
            let file = fs::File::create(image).map_err(|error| error.to_string())?;
            file.set_len(megabytes << 20).map_err(|error| error.to_string())?;
            run("mkfs.ext4", &["-q", image])
        };
        Self::mount(make, &["-o", "loop"])
    }

    fn mount(make: impl FnOnce(&str) -> Result<(), String>, arguments: &[&str]) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (image, path) = (directory.path().join("image"), directory.path().join("disk"));
        fs::create_dir(&path).map_err(|error| error.to_string())?;
        make(&image.to_string_lossy())?;
        let (image, point) = (image.to_string_lossy().into_owned(), path.to_string_lossy().into_owned());
        let mut arguments = arguments.to_vec();
        if !arguments.contains(&"tmpfs") {
            arguments.push(&image);
        }
        arguments.push(&point);
        run("mount", &arguments)?;
        Ok(Self { path, _directory: directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Mounts it again with other options.
    pub(crate) fn remount(&self, options: &str) -> Result<(), String> {
        run("mount", &["-o", &format!("remount,{options}"), &self.path.to_string_lossy()])
    }

    /// Unmounts and mounts an ext4 disk again, as after a repair.
    pub(crate) fn again(&self) -> Result<(), String> {
        run("umount", &[&self.path.to_string_lossy()])?;
        let image = self.path.with_file_name("image");
        run("mount", &["-o", "loop", &image.to_string_lossy(), &self.path.to_string_lossy()])
    }

    /// Takes all the room that is left but so many kilobytes; what is returned gives it back.
    pub(crate) fn fill(&self, but_kilobytes: usize) -> Filler {
        let path = self.path.join("filler");
        let mut file = fs::File::create(&path).expect("room for a name");
        let full = loop {
            if let Err(error) = file.write_all(&[7; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let length = file.metadata().expect("an open file").len();
        file.set_len(length.saturating_sub(but_kilobytes as u64 * 1024)).expect("it gets shorter");
        Filler(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &[&self.path.to_string_lossy()]) {
            eprintln!("a test's disk stays mounted: {error}");
        }
    }
}

/// What takes the room of a disk.
pub(crate) struct Filler(PathBuf);

impl Filler {
    pub(crate) fn remove(self) {
        fs::remove_file(&self.0).expect("it is there");
    }
}
