//! Every target on its corpus, and on seeded mutations of it.
//!
//! What is here never finds what a search of hours does, and needs no nightly toolchain: it keeps what was found once from
//! coming back, and keeps corpora, binaries and decoders from parting.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Target, run, targets};
use crate::storage::simulated::Random;

/// Mutations of each target's corpus.
const MUTATIONS: usize = 4_000;
/// No corpus file may be longer, so that a search begins fast.
const FILE_MAX: u64 = 40 * 1_024;
/// Nor may a corpus have more files.
const FILES_MAX: usize = 700;
/// Set to write the seeds that the encoders give into the corpora.
const WRITE: &str = "ADMIT_ONE_WRITE_SEEDS";

/// Where corpora and binaries are; none in a package from a registry, which leaves out what has a manifest of its own.
fn directory() -> Option<PathBuf> {
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")).filter(|fuzz| fuzz.exists())
}

/// The files of a target's corpus, in the order of their names.
fn corpus(fuzz: &Path, target: &Target) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(fuzz.join("corpus").join(target.name)).expect("every target has a corpus");
    let paths: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!((1..=FILES_MAX).contains(&paths.len()), "{}: {} files", target.name, paths.len());
    let read = |path: PathBuf| {
        assert!(path.metadata().unwrap().len() <= FILE_MAX, "{}: minimise it", path.display());
        fs::read(path).unwrap()
    };
    paths.into_iter().map(read).collect()
}

/// What goes wrong with bytes, a few times over.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = 1 + random.below(16).min(bytes.len());
        let end = bytes.len().min(at + length);
        match random.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, b'0', b'-'][random.below(9)],
            2 => bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8),
            3 => bytes[at..end].fill([0, 0xFF][random.below(2)]),
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..end)),
            6 => drop(bytes.splice(at..at, random.next().to_be_bytes().into_iter().take(length))),
            7 => bytes.extend_from_within(at..end),
            // The rest of another input.
            _ => drop(bytes.splice(at.., other[other.len().min(at)..].iter().copied())),
        }
    }
}

#[test]
fn every_target_holds_on_its_corpus_and_on_thousands_of_mutations_of_it() {
    let Some(fuzz) = directory() else { return };
    let mut random = Random(0xF022);
    let (mut files, mut decoded, mut refused) = (0, 0, 0);
    for target in targets() {
        let corpus = corpus(&fuzz, target);
        let whole = corpus.iter().filter(|bytes| run(target.name, bytes)).count();
        assert!(whole > 0, "{}: nothing in its corpus decodes: write seeds with {WRITE}=1", target.name);
        files += corpus.len();
        for round in 0..MUTATIONS {
            let mut bytes = corpus[round % corpus.len()].clone();
            let other = random.below(corpus.len());
            mutate(&mut random, &mut bytes, &corpus[other]);
            if run(target.name, &bytes) { decoded += 1 } else { refused += 1 }
        }
    }
    println!("{} targets, {files} files; mutations: {decoded} decoded, {refused} refused", targets().count());
    assert!(decoded > 10_000 && refused > 10_000, "{decoded} decoded, {refused} refused");
}

#[test]
fn what_encoders_write_decodes_and_is_in_the_corpus() {
    let fuzz = directory();
    for target in targets() {
        let seeds = (target.seeds)();
        assert!((target.run)(&seeds[0]), "{}: its first seed does not decode", target.name);
        let Some(fuzz) = &fuzz else { continue };
        let directory = fuzz.join("corpus").join(target.name);
        if std::env::var_os(WRITE).is_some() {
            fs::create_dir_all(&directory).unwrap();
            for seed in &seeds {
                let name = blake3::hash(seed).to_hex();
                fs::write(directory.join(format!("seed-{}", &name[..16])), seed).unwrap();
            }
        }
        let corpus: BTreeSet<_> = corpus(fuzz, target).into_iter().collect();
        let absent = seeds.iter().filter(|seed| !corpus.contains(*seed)).count();
        assert_eq!(absent, 0, "{}: set {WRITE}=1 and run this again to write its seeds", target.name);
    }
}

#[test]
fn every_target_has_a_binary_of_its_name_and_every_binary_a_target() {
    let Some(fuzz) = directory() else { return };
    let names: BTreeSet<_> = targets().map(|target| target.name).collect();
    assert_eq!(names.len(), targets().count(), "two targets have one name");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for name in &names {
        let binary = fs::read_to_string(fuzz.join("targets").join(format!("{name}.rs"))).expect("it has a binary");
        assert!(binary.contains(&format!("run(\"{name}\", data)")), "{name}: its binary runs another target");
        let entry = format!("[[bin]]\nname = \"{name}\"\npath = \"targets/{name}.rs\"\n");
        assert!(manifest.contains(&entry), "{name}: it is not in fuzz/Cargo.toml");
    }
    // A target of a feature that is off has its binary all the same.
    if cfg!(all(feature = "files", feature = "http")) {
        for (directory, ending) in [("targets", ".rs"), ("corpus", "")] {
            let entries = fs::read_dir(fuzz.join(directory)).unwrap();
            let found = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let found: BTreeSet<_> = found.map(|name| name.trim_end_matches(ending).to_owned()).collect();
            assert_eq!(found, names.iter().map(|name| (*name).to_owned()).collect(), "fuzz/{directory}");
        }
    }
}

#[test]
#[should_panic(expected = "no fuzz target is named nothing")]
fn a_target_that_is_none_is_told() {
    run("nothing", b"");
}

/// The harness sees what a decoder gets wrong: of these, one panics, one reads what it would not write.
#[test]
fn a_decoder_that_is_wrong_does_not_pass() {
    let panics = std::panic::catch_unwind(|| {
        super::cut_anywhere(
            &[3; 20],
            || (),
            |(), input| {
                let (first, rest) = input.split_first()?;
                *input = rest;
                // How much is left of a piece is no property of the bytes.
                Some((*first, rest.len()))
            },
        )
    });
    assert!(panics.is_err(), "what depends on where bytes are cut was not seen");
    let floor = |bytes: &[u8]| bytes.first().copied();
    let panics = std::panic::catch_unwind(|| {
        crate::storage::seal::fuzz("a kind", true, b"some bytes and a checksum", floor, |_| bytes::Bytes::new())
    });
    assert!(panics.is_err(), "a decoder that checks no checksum was not seen");
}
