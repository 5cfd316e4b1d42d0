//! Private keys in the encodings of other programs.
//!
//! rcgen signs with PKCS#8 keys and creates no others, but Go programs also write PKCS#1 and SEC1 keys. Those lack only
//! the PKCS#8 envelope that names the algorithm.

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::CertificateError;

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
/// INTEGER 0, the version without further fields.
const VERSION: &[u8] = &[0x02, 0x01, 0x00];
/// rsaEncryption, with its NULL.
const RSA: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// id-ecPublicKey on P-256, and on P-384: the curves that can sign.
const ELLIPTIC: [&[u8]; 2] = [
    &[
        0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
        0x01, 0x07,
    ],
    &[
        0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22,
    ],
];

/// Returns the first key of a PEM text.
pub(super) fn read(pem: &str) -> Result<KeyPair, CertificateError> {
    // The error of the parser could quote the text.
    let unreadable = || CertificateError::Read("no private key found".to_owned());
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| unreadable())?;
    let envelopes = match &key {
        PrivateKeyDer::Pkcs8(key) => vec![key.secret_pkcs8_der().to_vec()],
        PrivateKeyDer::Pkcs1(key) => vec![envelope(RSA, key.secret_pkcs1_der())],
        // The key need not name its curve, and only one of them fits.
        PrivateKeyDer::Sec1(key) => ELLIPTIC
            .map(|algorithm| envelope(algorithm, key.secret_sec1_der()))
            .to_vec(),
        _ => return Err(unreadable()),
    };
    let mut result = Err(unreadable());
    for der in envelopes {
        result = KeyPair::try_from(&PrivatePkcs8KeyDer::from(der)).map_err(CertificateError::from);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Wraps a key into PKCS#8.
fn envelope(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let contents = [
        VERSION.to_vec(),
        element(SEQUENCE, algorithm),
        element(OCTET_STRING, key),
    ];
    element(SEQUENCE, &contents.concat())
}

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut all = vec![tag];
    let length = contents.len().to_be_bytes();
    let significant = length.iter().skip_while(|byte| **byte == 0).copied();
    let significant: Vec<u8> = significant.collect();
    match (contents.len(), u8::try_from(significant.len())) {
        (0..=0x7f, _) => all.push(significant.first().copied().unwrap_or_default()),
        // Eight bytes hold every length.
        (_, count) => {
            all.push(0x80 | count.unwrap_or_default());
            all.extend(significant);
        }
    }
    all.extend_from_slice(contents);
    all
}
