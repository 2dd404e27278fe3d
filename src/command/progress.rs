//! Progress of long work, on standard error, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `of` steps. It shows nothing where standard error is no terminal.
pub(crate) fn bar(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(of).with_message(what.to_owned());
    match ProgressStyle::with_template("{msg:20} {wide_bar} {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        // The default style says the same.
        Err(_) => bar,
    }
}
