use std::fmt;

/// Whether authority was consumed by what was refused (law L12.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consumed {
    /// It is as good as before.
    No,
    /// It is spent.
    Yes,
    /// The store cannot say: it counts as spent until the store says otherwise.
    Unknown,
}

impl fmt::Display for Consumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consumed::No => "no",
            Consumed::Yes => "yes",
            Consumed::Unknown => "unknown",
        })
    }
}
