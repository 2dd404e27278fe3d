//! A fuzz target for every decoder of bytes that come from a peer or a disk.
//!
//! A target stands beside its decoder: one function that takes any bytes, and asserts that they give a value or an error,
//! never a panic; that what decodes is written as it was read, or, where a checksum vouches for the bytes, to a form that
//! reads as the same value; and that what is kept of the bytes is within its bounds. It answers whether they decoded.
//!
//! Random bytes never get past a checksum. So a target whose decoder checks one takes the bytes as they are, and again with
//! their checksum put right.
//!
//! `fuzz/` has a libFuzzer binary for each target, and its corpus; `docs/fuzzing.md` says how to run them. The tests here
//! run every corpus and seeded mutations of it, on any toolchain.

#[cfg(test)]
mod tests;

/// One decoder's target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Its name, which its corpus and its binary have too.
    pub(crate) name: &'static str,
    /// Decodes, asserts, and says whether the bytes decoded.
    pub(crate) run: fn(&[u8]) -> bool,
    /// What its encoder writes, and what begins a search well.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target, by room.
const ROOMS: &[&[Target]] = &[
    &crate::identity::FUZZ,
    &crate::message::FUZZ,
    &crate::link::references::FUZZ,
    &crate::lanes::FUZZ,
    &crate::storage::FUZZ,
    #[cfg(not(target_family = "wasm"))]
    crate::storage::JOURNAL_FUZZ,
    #[cfg(not(target_family = "wasm"))]
    crate::storage::URL_FUZZ,
    &crate::layer::FUZZ,
    crate::layer::CREDENTIAL_FUZZ,
];

pub(crate) fn targets() -> impl Iterator<Item = &'static Target> {
    ROOMS.iter().copied().flatten()
}

/// Runs the target of this name on `data`, and says whether it decoded.
///
/// # Panics
/// If no target has this name, and where a decoder breaks what its target asserts: that is a defect.
pub fn run(target: &str, data: &[u8]) -> bool {
    let found = targets().find(|known| known.name == target);
    (found.unwrap_or_else(|| panic!("no fuzz target is named {target}")).run)(data)
}

/// Takes a stream of bytes whole, and cut into pieces of the lengths that its first bytes say, and asserts that both ways
/// find the same items. `next` finds one item at a time, in a state of its own that `new` makes.
pub(crate) fn cut_anywhere<S, T: PartialEq + std::fmt::Debug>(
    data: &[u8],
    new: impl Fn() -> S,
    next: impl Fn(&mut S, &mut &[u8]) -> Option<T>,
) -> Vec<T> {
    let read = |cuts: &[u8], bytes: &[u8]| {
        let (mut state, mut rest, mut found) = (new(), bytes, Vec::new());
        for cut in cuts.iter().map(|cut| usize::from(*cut)).chain([usize::MAX]) {
            let (mut piece, after) = rest.split_at_checked(cut).unwrap_or((rest, &[]));
            rest = after;
            while let Some(item) = next(&mut state, &mut piece) {
                found.push(item);
            }
            assert!(piece.is_empty(), "bytes were left unread");
        }
        found
    };
    let (cuts, bytes) = data.split_at_checked(8).unwrap_or((&[], data));
    let whole = read(&[], bytes);
    assert_eq!(read(cuts, bytes), whole, "what is found depends on where the bytes were cut");
    whole
}
