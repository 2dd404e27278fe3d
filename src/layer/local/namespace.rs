use std::fmt;

/// The longest namespace that can be registered, in bytes.
pub const NAMESPACE_LEN_MAX: usize = 64;

/// An application's namespace, as the classifier reads it off the data (law L2.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    bytes: [u8; NAMESPACE_LEN_MAX],
    length: u8,
}

/// A namespace over [`NAMESPACE_LEN_MAX`]. It can be used, and cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a namespace of {length} bytes is over the {NAMESPACE_LEN_MAX} that can be registered: shorten it")]
pub struct NamespaceTooLong {
    /// Its length in bytes.
    pub length: usize,
}

impl Namespace {
    /// The namespace of these bytes.
    ///
    /// # Errors
    /// [`NamespaceTooLong`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NamespaceTooLong> {
        let bytes = bytes.as_ref();
        let too_long = NamespaceTooLong { length: bytes.len() };
        let length = u8::try_from(bytes.len()).map_err(|_| too_long)?;
        let mut namespace = Self { bytes: [0; NAMESPACE_LEN_MAX], length };
        namespace.bytes.get_mut(..bytes.len()).ok_or(too_long)?.copy_from_slice(bytes);
        Ok(namespace)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}
