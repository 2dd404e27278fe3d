use std::{fmt, str::FromStr};

use curve25519_dalek::edwards::CompressedEdwardsY;
use libp2p::{PeerId, identity::PublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An Ed25519 public key: who a node, an origin or a delegatee is (law L1.1).
///
/// Every value is a point in canonical encoding that is not of small order. It displays and parses as 64
/// lower-case hex digits, and serializes so for people and as 32 bytes for machines.
///
/// ```
/// use admit_one::identity::Did;
/// use libp2p::identity::Keypair;
///
/// let peer = Keypair::generate_ed25519().public().to_peer_id();
/// let did = Did::try_from(&peer)?;
/// assert_eq!(did.to_peer_id(), peer);
/// # Ok::<(), admit_one::identity::DidError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Did([u8; 32]);

/// The multihash code of a peer id that holds its key itself.
const IDENTITY_MULTIHASH: u64 = 0;

/// What stands before the key in an Ed25519 key's protobuf: field 1 (key type) is 1, field 2 has 32 bytes.
const PROTOBUF_PREFIX: [u8; 4] = [0x08, 0x01, 0x12, 0x20];

/// Why bytes or a libp2p identity are no [`Did`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DidError {
    /// The bytes are no point of the curve, or not its canonical encoding.
    #[error("not an Ed25519 public key")]
    NotAKey,
    /// The key is of small order: signatures under it prove nothing.
    #[error("a weak Ed25519 key, of small order")]
    Weak,
    /// The libp2p identity is of another key type, or its peer id holds only a hash of a key, or no key at all.
    #[error("the peer id or identity does not hold an Ed25519 key: give the node an Ed25519 identity")]
    NotEd25519,
    /// The text is not 64 lower-case hex digits.
    #[error("not 64 lower-case hex digits")]
    NotHex,
}

impl Did {
    /// Encoded length in bytes.
    pub const LEN: usize = 32;

    /// Takes the 32 bytes of a public key.
    ///
    /// # Errors
    /// [`DidError::NotAKey`] and [`DidError::Weak`].
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, DidError> {
        // y is below 2^255 - 19 in a canonical encoding; dalek reduces a greater one in silence, which would give
        // one key two names.
        let [first, middle @ .., last] = bytes;
        if last & 0x7f == 0x7f && *first >= 0xed && middle.iter().all(|byte| *byte == 0xff) {
            return Err(DidError::NotAKey);
        }
        // Not through a `VerifyingKey`, whose error is boxed: what a peer sends would make this allocate.
        let point = CompressedEdwardsY(*bytes).decompress().ok_or(DidError::NotAKey)?;
        if point.is_small_order() { Err(DidError::Weak) } else { Ok(Self(*bytes)) }
    }

    /// The 32 bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The peer id of the libp2p identity with this key.
    pub fn to_peer_id(&self) -> PeerId {
        // Two bytes of multihash (identity, 36 bytes long), then the protobuf. What a peer id must satisfy (a known
        // code, a length that matches and fits) stands in these constants, never in the key, so this cannot fail.
        let mut bytes = [0; 2 + PROTOBUF_PREFIX.len() + Self::LEN];
        bytes[1] = 0x24;
        bytes[2..6].copy_from_slice(&PROTOBUF_PREFIX);
        bytes[6..].copy_from_slice(&self.0);
        PeerId::from_bytes(&bytes).unwrap_or_else(|_| unreachable!("an identity multihash of 36 bytes is a peer id"))
    }
}

impl TryFrom<&PeerId> for Did {
    type Error = DidError;

    fn try_from(peer: &PeerId) -> Result<Self, DidError> {
        // Only the one encoding that libp2p itself writes: a protobuf decoder would also take reordered, repeated and
        // unknown fields, and so give one key several peer ids.
        let hash = peer.as_ref();
        let key = match (hash.code(), hash.digest().strip_prefix(&PROTOBUF_PREFIX)) {
            (IDENTITY_MULTIHASH, Some(key)) => <&[u8; Self::LEN]>::try_from(key),
            _ => return Err(DidError::NotEd25519),
        };
        Self::from_bytes(key.map_err(|_| DidError::NotEd25519)?)
    }
}

impl TryFrom<&PublicKey> for Did {
    type Error = DidError;

    fn try_from(key: &PublicKey) -> Result<Self, DidError> {
        let key = key.clone().try_into_ed25519().map_err(|_| DidError::NotEd25519)?;
        Self::from_bytes(&key.to_bytes())
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Did({self})")
    }
}

impl FromStr for Did {
    type Err = DidError;

    fn from_str(text: &str) -> Result<Self, DidError> {
        let mut bytes = [0; 32];
        let mut digits = text.bytes();
        for byte in &mut bytes {
            // Lower case only, so that one key has one name.
            let mut digit = || match digits.next() {
                Some(digit @ b'0'..=b'9') => Ok(digit - b'0'),
                Some(digit @ b'a'..=b'f') => Ok(digit - b'a' + 10),
                _ => Err(DidError::NotHex),
            };
            *byte = digit()? << 4 | digit()?;
        }
        if digits.next().is_some() {
            return Err(DidError::NotHex);
        }
        Self::from_bytes(&bytes)
    }
}

impl Serialize for Did {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Did {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
        } else {
            Self::from_bytes(&<[u8; 32]>::deserialize(deserializer)?).map_err(D::Error::custom)
        }
    }
}

/// The fuzz target of every way in which a key is read: 32 bytes, text, and a peer id.
#[cfg(any(test, fuzzing))]
pub(super) const FUZZ: crate::fuzzing::Target = crate::fuzzing::Target {
    name: "did",
    run: |data| {
        let by_bytes = data.try_into().ok().and_then(|bytes| Did::from_bytes(bytes).ok());
        if let Some(did) = by_bytes {
            assert_eq!(did.as_bytes().as_slice(), data);
            assert_eq!(Did::try_from(&did.to_peer_id()), Ok(did));
            assert_eq!(did.to_string().parse(), Ok(did));
        }
        let by_text = std::str::from_utf8(data).ok().and_then(|text| Some((text, text.parse::<Did>().ok()?)));
        if let Some((text, did)) = by_text {
            assert_eq!(did.to_string(), text, "one key has two texts");
        }
        let peer = PeerId::from_bytes(data).ok();
        let by_peer = peer.and_then(|peer| Did::try_from(&peer).ok());
        if let Some(did) = by_peer {
            assert_eq!(Some(did.to_peer_id()), peer, "one key has two peer ids");
        }
        by_bytes.is_some() || by_text.is_some() || by_peer.is_some()
    },
    seeds: || {
        let did = super::KeySigner::fuzzing(1).key();
        vec![
            did.as_bytes().to_vec(),
            did.to_string().into_bytes(),
            did.to_peer_id().to_bytes(),
            vec![0; 32],
            [&[0xed], [0xff; 30].as_slice(), &[0x7f]].concat(),
        ]
    },
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use curve25519_dalek::{constants::EIGHT_TORSION, edwards::EdwardsPoint, scalar::Scalar};
    use libp2p::{identity::Keypair, multihash::Multihash};

    use super::*;
    use crate::identity::KeySigner;

    fn bytes(hex: &str) -> [u8; 32] {
        hex::decode(hex).unwrap().try_into().unwrap()
    }

    fn peer(code: u8, digest: &[u8]) -> PeerId {
        let length = u8::try_from(digest.len()).unwrap();
        PeerId::from_bytes(&[&[code, length], digest].concat()).unwrap()
    }

    #[test]
    fn l1_1_every_encoding_of_every_small_order_point_is_refused() {
        // The eight points; then the two whose x is 0 with a sign all the same; then the points with y = 0 and y = 1
        // written as p and p + 1, under either sign.
        let encodings: [(&str, DidError); 14] = [
            ("0100000000000000000000000000000000000000000000000000000000000000", DidError::Weak),
            ("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", DidError::Weak),
            ("0000000000000000000000000000000000000000000000000000000000000000", DidError::Weak),
            ("0000000000000000000000000000000000000000000000000000000000000080", DidError::Weak),
            ("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", DidError::Weak),
            ("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85", DidError::Weak),
            ("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", DidError::Weak),
            ("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa", DidError::Weak),
            ("0100000000000000000000000000000000000000000000000000000000000080", DidError::Weak),
            ("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", DidError::Weak),
            ("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", DidError::NotAKey),
            ("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", DidError::NotAKey),
            ("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", DidError::NotAKey),
            ("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", DidError::NotAKey),
        ];
        let mut points = HashSet::new();
        for (hex, refusal) in encodings {
            let point = CompressedEdwardsY(bytes(hex)).decompress().expect("a point all the same");
            assert!(point.is_small_order(), "{hex}");
            points.insert(point.compress().to_bytes());
            assert_eq!(Did::from_bytes(&bytes(hex)), Err(refusal), "{hex}");
            assert_eq!(hex.parse::<Did>(), Err(refusal), "{hex}");
        }
        assert_eq!(points, EIGHT_TORSION.map(|point| point.compress().to_bytes()).into(), "all eight points");
    }

    #[test]
    fn l1_1_a_second_encoding_of_a_point_is_refused() {
        // y from p to 2^255 - 1, under either sign: each one decodes to a point with another encoding, or to none.
        for low in 0xed..=0xff {
            for high in [0x7f, 0xff] {
                let mut encoding = [0xff; 32];
                (encoding[0], encoding[31]) = (low, high);
                assert_eq!(Did::from_bytes(&encoding), Err(DidError::NotAKey));
                if let Some(point) = CompressedEdwardsY(encoding).decompress() {
                    assert_ne!(point.compress().to_bytes(), encoding);
                }
            }
        }
        // Just below p, the edge of what is canonical: y = p - 1 is weak and y = p - 2 is no point's.
        let mut edge = [0xff; 32];
        (edge[0], edge[31]) = (0xeb, 0x7f);
        assert_eq!(CompressedEdwardsY(edge).decompress().is_some(), Did::from_bytes(&edge).is_ok());
    }

    #[test]
    fn l1_1_every_key_that_is_taken_has_one_encoding() {
        let mut seed = blake3::Hasher::new().update(b"candidates").finalize_xof();
        let mut taken = 0;
        for _ in 0..2_000 {
            let mut candidate = [0; 32];
            seed.fill(&mut candidate);
            match Did::from_bytes(&candidate) {
                Ok(did) => {
                    taken += 1;
                    let point = CompressedEdwardsY(candidate).decompress().unwrap();
                    assert_eq!(point.compress().as_bytes(), did.as_bytes());
                    assert!(!point.is_small_order());
                }
                Err(refusal) => {
                    assert_eq!(refusal, DidError::NotAKey);
                    assert!(CompressedEdwardsY(candidate).decompress().is_none());
                }
            }
        }
        assert!((800..1_200).contains(&taken), "half of all strings are points, not {taken} of 2000");
    }

    #[test]
    fn l1_1_converts_to_and_from_the_peer_id_of_many_keys() {
        for index in 0..1_000_u64 {
            let signer = KeySigner::from_secret(blake3::hash(&index.to_be_bytes()).as_bytes()).unwrap();
            let did = signer.key();
            let libp2p_key = libp2p::identity::ed25519::PublicKey::try_from_bytes(did.as_bytes()).unwrap();
            let expected = PublicKey::from(libp2p_key).to_peer_id();
            assert_eq!(did.to_peer_id(), expected);
            assert_eq!(Did::try_from(&expected), Ok(did));
        }
    }

    #[test]
    fn l1_1_a_key_with_a_torsion_component_is_a_key_of_its_own() {
        let plain = EdwardsPoint::mul_base(&Scalar::from(77_u64));
        let mixed = plain + EIGHT_TORSION[1];
        let (plain, mixed) = (plain.compress().to_bytes(), mixed.compress().to_bytes());
        let (plain, mixed) = (Did::from_bytes(&plain).unwrap(), Did::from_bytes(&mixed).unwrap());
        assert_ne!(plain, mixed);
        assert_eq!(Did::try_from(&mixed.to_peer_id()), Ok(mixed));
    }

    #[test]
    fn l1_1_a_peer_of_another_key_type_is_refused() {
        let key = KeySigner::from_secret(&[7; 32]).unwrap().key();
        // Protobufs of a secp256k1 key (type 2, 33 bytes), which a peer id holds whole, and of an Ed25519 key's
        // bytes under the types of RSA (0) and ECDSA (3).
        let secp256k1 = [&[0x08, 0x02, 0x12, 0x21, 0x02], key.as_bytes().as_slice()].concat();
        let rsa = [&[0x08, 0x00, 0x12, 0x20], key.as_bytes().as_slice()].concat();
        let ecdsa = [&[0x08, 0x03, 0x12, 0x20], key.as_bytes().as_slice()].concat();
        for protobuf in [&secp256k1, &rsa, &ecdsa] {
            assert_eq!(Did::try_from(&peer(0x00, protobuf)), Err(DidError::NotEd25519));
        }
        // RSA and ECDSA keys are too long for that: their peer ids are SHA-256 hashes.
        assert_eq!(Did::try_from(&peer(0x12, blake3::hash(b"a long key").as_bytes())), Err(DidError::NotEd25519));
        assert!(DidError::NotEd25519.to_string().contains("give the node an Ed25519 identity"));
    }

    #[test]
    fn l1_1_a_peer_id_that_holds_no_key_is_refused() {
        for _ in 0..64 {
            assert_eq!(Did::try_from(&PeerId::random()), Err(DidError::NotEd25519));
        }
        assert_eq!(Did::try_from(&peer(0x00, &[])), Err(DidError::NotEd25519));
    }

    #[test]
    fn l1_1_one_key_has_one_peer_id() {
        let key = KeySigner::from_secret(&[7; 32]).unwrap().key();
        let prefix = [0x08, 0x01, 0x12, 0x20];
        let whole = [&prefix, key.as_bytes().as_slice()].concat();
        assert_eq!(Did::try_from(&peer(0x00, &whole)), Ok(key));
        // What a protobuf decoder would take as well: fields the other way round, a field that it does not know,
        // a type in two bytes.
        let swapped = [&[0x12, 0x20], key.as_bytes().as_slice(), &[0x08, 0x01]].concat();
        let unknown = [&prefix, key.as_bytes().as_slice(), &[0x18, 0x05]].concat();
        let padded = [&[0x08, 0x81, 0x00, 0x12, 0x20], key.as_bytes().as_slice()].concat();
        for other in [&swapped, &unknown, &padded] {
            assert_eq!(Did::try_from(&peer(0x00, other)), Err(DidError::NotEd25519));
        }
        // Its SHA-256 peer id is another name for it too, and does not hold it.
        let hashed = Multihash::<64>::wrap(0x12, &<sha2::Sha256 as sha2::Digest>::digest(&whole)).unwrap();
        assert_eq!(Did::try_from(&PeerId::from_multihash(hashed).unwrap()), Err(DidError::NotEd25519));
    }

    #[test]
    fn l1_1_a_weak_or_broken_key_in_a_peer_id_is_refused_as_such() {
        let mut weak = vec![0x08, 0x01, 0x12, 0x20];
        weak.extend([0; 32]);
        assert_eq!(Did::try_from(&peer(0x00, &weak)), Err(DidError::Weak));
        let mut broken = vec![0x08, 0x01, 0x12, 0x20];
        broken.extend([0xff; 32]);
        assert_eq!(Did::try_from(&peer(0x00, &broken)), Err(DidError::NotAKey));
        let mut short = vec![0x08, 0x01, 0x12, 0x20];
        short.extend([9; 31]);
        assert_eq!(Did::try_from(&peer(0x00, &short)), Err(DidError::NotEd25519));
    }

    #[test]
    fn l1_1_a_libp2p_public_key_converts() {
        let keypair = Keypair::generate_ed25519();
        let did = Did::try_from(&keypair.public()).unwrap();
        assert_eq!(did.to_peer_id(), keypair.public().to_peer_id());
        assert_eq!(KeySigner::from_keypair(&keypair).unwrap().key(), did);
    }

    #[test]
    fn text_is_64_lower_case_hex_digits_and_nothing_else() {
        let did = KeySigner::from_secret(&[7; 32]).unwrap().key();
        let text = did.to_string();
        assert_eq!(text, hex::encode(did.as_bytes()));
        assert_eq!(text.parse(), Ok(did));
        assert_eq!(text[1..].parse::<Did>(), Err(DidError::NotHex));
        assert_eq!(format!("{text}0").parse::<Did>(), Err(DidError::NotHex));
        assert_eq!(text.to_uppercase().parse::<Did>(), Err(DidError::NotHex));
        assert_eq!(format!("0x{}", &text[2..]).parse::<Did>(), Err(DidError::NotHex));
        assert_eq!(format!("{}é", &text[2..]).parse::<Did>(), Err(DidError::NotHex));
        assert_eq!("".parse::<Did>(), Err(DidError::NotHex));
    }

    #[test]
    fn serializes_as_text_for_people_and_as_32_bytes_for_machines() {
        let did = KeySigner::from_secret(&[7; 32]).unwrap().key();
        let json = serde_json::to_string(&did).unwrap();
        assert_eq!(json, format!("\"{did}\""));
        assert_eq!(serde_json::from_str::<Did>(&json).unwrap(), did);
        assert_eq!(serde_json::from_slice::<Did>(json.as_bytes()).unwrap(), did);

        let mut cbor = Vec::new();
        ciborium::into_writer(&did, &mut cbor).unwrap();
        let mut expected = Vec::new();
        ciborium::into_writer(did.as_bytes(), &mut expected).unwrap();
        assert_eq!(cbor, expected);
        assert_eq!(ciborium::from_reader::<Did, _>(cbor.as_slice()).unwrap(), did);
    }

    #[test]
    fn l1_1_weak_keys_are_refused_however_they_are_deserialized() {
        let json = format!("\"{}\"", hex::encode([0; 32]));
        let error = serde_json::from_str::<Did>(&json).unwrap_err();
        assert!(error.to_string().contains(&DidError::Weak.to_string()), "{error}");
        let mut cbor = Vec::new();
        ciborium::into_writer(&[0_u8; 32], &mut cbor).unwrap();
        let error = ciborium::from_reader::<Did, _>(cbor.as_slice()).unwrap_err();
        assert!(error.to_string().contains(&DidError::Weak.to_string()), "{error}");
    }
}
