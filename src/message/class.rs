use std::{fmt::Debug, ops::Range};

use serde::{Deserialize, Serialize};

/// The four classes of traffic, each with a lane of its own (laws L2.6 and L3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Class {
    /// Control traffic of a distributed hash table. Lane 0, scheduled first.
    DhtControl = 0,
    /// Stored data and its replication. Lane 1.
    Storage = 1,
    /// End-to-end messages. Lane 2.
    E2e = 2,
    /// Everything that names an application's namespace. Lane 3.
    Application = 3,
}

impl Class {
    /// The classes, in the order of their lanes.
    pub const ALL: [Class; 4] = [Class::DhtControl, Class::Storage, Class::E2e, Class::Application];

    /// The class's lane, 0 to 3.
    pub const fn lane(self) -> u8 {
        self as u8
    }

    /// The class of a lane, or `None` past 3.
    pub const fn from_lane(lane: u8) -> Option<Class> {
        match lane {
            0 => Some(Class::DhtControl),
            1 => Some(Class::Storage),
            2 => Some(Class::E2e),
            3 => Some(Class::Application),
            _ => None,
        }
    }

    /// The name that metrics are labelled with.
    pub const fn label(self) -> &'static str {
        match self {
            Class::DhtControl => "dht_control",
            Class::Storage => "storage",
            Class::E2e => "e2e",
            Class::Application => "application",
        }
    }
}

/// What a [`Classifier`] read at the head of a transaction's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// The class.
    pub class: Class,
    /// Where in the data the namespace stands, for Application.
    pub namespace: Option<Range<usize>>,
    /// How many first bytes of the data this answer depends on: any data that begins with the same ones is classified
    /// alike. Each chunk of a larger transaction begins with a copy of them (law L2.8).
    pub head: usize,
}

/// Data that a classifier cannot place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifyError {
    /// There is no data to read a tag from.
    #[error("no data to read a class from")]
    Empty,
    /// The tag is no class's.
    #[error("no class has tag {0}")]
    UnknownTag(u8),
    /// The namespace runs past the data.
    #[error("the namespace runs past the end of the data")]
    Truncated,
}

/// Tells classifiers apart: a hash of whatever their answers depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClassifierId([u8; Self::LEN]);

impl ClassifierId {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// The identity of the classifier that is described by `name`: its author's name for it, its version, and its
    /// parameters.
    pub fn of(name: &str) -> Self {
        Self(blake3::derive_key("admit-one classifier identity 1", name.as_bytes()))
    }

    pub(crate) const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// Derives a transaction's class from its signed data, alike on both sides (law L2.6).
///
/// The class is hashed into what is signed and never travels, so two nodes with different classifiers refuse each
/// other's signatures.
pub trait Classifier: Debug + Send + Sync + 'static {
    /// Names what [`classify`](Self::classify) answers: two classifiers that answer alike for all data may share an
    /// identity, and two that differ for any must not. A receiver records it: where the data of a delegating namespace
    /// may be read as of another one since, what was issued before is refused (law L6.4).
    fn identity(&self) -> ClassifierId;

    /// Reads the class, and for Application the namespace, of `data`. Pure: the same data gives the same answer.
    ///
    /// # Errors
    /// [`ClassifyError`]; the transaction is refused.
    fn classify(&self, data: &[u8]) -> Result<Classified, ClassifyError>;
}

/// The default: one tag byte, the lane's number, and for Application a namespace of one length byte and that many
/// bytes.
///
/// ```
/// use admit_one::message::{Class, Classifier, TagClassifier};
///
/// let data = TagClassifier::application("chat", b"hello")?;
/// let classified = TagClassifier.classify(&data)?;
/// assert_eq!(classified.class, Class::Application);
/// assert_eq!(&data[classified.namespace.unwrap()], b"chat");
/// assert_eq!(TagClassifier.classify(&[0, 42])?.class, Class::DhtControl);
/// # Ok::<(), admit_one::message::ClassifyError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TagClassifier;

impl TagClassifier {
    /// Data of class `Application` in `namespace`, of at most 255 bytes.
    ///
    /// # Errors
    /// [`ClassifyError::Truncated`] for a longer namespace, which its length byte cannot hold.
    pub fn application(namespace: &str, body: &[u8]) -> Result<Vec<u8>, ClassifyError> {
        let length = u8::try_from(namespace.len()).map_err(|_| ClassifyError::Truncated)?;
        Ok([&[Class::Application.lane(), length], namespace.as_bytes(), body].concat())
    }
}

impl Classifier for TagClassifier {
    fn identity(&self) -> ClassifierId {
        ClassifierId::of("admit-one tag classifier 1")
    }

    fn classify(&self, data: &[u8]) -> Result<Classified, ClassifyError> {
        let (&tag, rest) = data.split_first().ok_or(ClassifyError::Empty)?;
        let class = Class::from_lane(tag).ok_or(ClassifyError::UnknownTag(tag))?;
        let namespace = if class == Class::Application {
            let (&length, rest) = rest.split_first().ok_or(ClassifyError::Truncated)?;
            let namespace = rest.get(..usize::from(length)).ok_or(ClassifyError::Truncated)?;
            Some(2..2 + namespace.len())
        } else {
            None
        };
        let head = namespace.as_ref().map_or(1, |namespace| namespace.end);
        Ok(Classified { class, namespace, head })
    }
}

/// The fuzz target of the default classifier.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "class",
    run: |data| {
        let Ok(classified) = TagClassifier.classify(data) else { return false };
        let head = data.get(..classified.head).unwrap_or_else(|| panic!("the head runs past the data"));
        assert_eq!(classified.namespace.is_some(), classified.class == Class::Application);
        if let Some(namespace) = &classified.namespace {
            assert!(head.get(namespace.clone()).is_some_and(|name| name.len() <= 255));
        }
        // Nothing behind the head changes the answer, which is what lets chunks be classified (law L2.8).
        assert_eq!(TagClassifier.classify(head), Ok(classified.clone()));
        assert_eq!(TagClassifier.classify(&[head, b"other"].concat()), Ok(classified));
        true
    },
    seeds: || {
        let application = TagClassifier::application("chat", b"hi").unwrap_or_default();
        vec![vec![0, 1], vec![1], vec![2, 2], application, vec![3, 255, 1], vec![4]]
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_1_classes_and_lanes_name_each_other() {
        for class in Class::ALL {
            assert_eq!(Class::from_lane(class.lane()), Some(class));
        }
        assert_eq!(Class::ALL.map(Class::lane), [0, 1, 2, 3]);
        assert!((4..=u8::MAX).all(|lane| Class::from_lane(lane).is_none()));
        assert_eq!(Class::ALL.map(Class::label), ["dht_control", "storage", "e2e", "application"]);
    }

    #[test]
    fn l2_6_the_tag_and_for_application_the_namespace_are_read_off_the_head() {
        for (tag, class) in [(0, Class::DhtControl), (1, Class::Storage), (2, Class::E2e)] {
            let expected = Ok(Classified { class, namespace: None, head: 1 });
            assert_eq!(TagClassifier.classify(&[tag]), expected);
            assert_eq!(TagClassifier.classify(&[tag, 255, 1]), expected);
        }
        let application = |namespace: Range<usize>| {
            let head = namespace.end;
            Ok(Classified { class: Class::Application, namespace: Some(namespace), head })
        };
        assert_eq!(TagClassifier.classify(&[3, 0]), application(2..2));
        assert_eq!(TagClassifier.classify(b"\x03\x04chathello"), application(2..6));
        assert_eq!(TagClassifier.classify(b"\x03\x04chat"), application(2..6));
    }

    #[test]
    fn l2_6_data_that_cannot_be_placed_is_refused() {
        assert_eq!(TagClassifier.classify(&[]), Err(ClassifyError::Empty));
        for tag in 4..=u8::MAX {
            assert_eq!(TagClassifier.classify(&[tag, 0]), Err(ClassifyError::UnknownTag(tag)));
        }
        assert_eq!(TagClassifier.classify(&[3]), Err(ClassifyError::Truncated));
        assert_eq!(TagClassifier.classify(b"\x03\x05chat"), Err(ClassifyError::Truncated));
        assert_eq!(TagClassifier.classify(&[3, 255]), Err(ClassifyError::Truncated));
    }

    #[test]
    fn a_namespace_of_255_bytes_is_the_longest() {
        let longest = "n".repeat(255);
        let data = TagClassifier::application(&longest, b"body").unwrap();
        let namespace = TagClassifier.classify(&data).unwrap().namespace.unwrap();
        assert_eq!((&data[namespace.clone()], &data[namespace.end..]), (longest.as_bytes(), b"body".as_slice()));
        assert_eq!(TagClassifier::application(&"n".repeat(256), b""), Err(ClassifyError::Truncated));
    }
}
