# SPDX-License-Identifier: Apache-2.0
"""The usages of a certificate in Kubernetes' words, and what each is in X.509: a key usage bit or an extended usage.

It does not decide which usages a signer permits: see `profiles` and `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509

from handfast import errors

DIGITAL_SIGNATURE = "digital signature"
KEY_ENCIPHERMENT = "key encipherment"
CERT_SIGN = "cert sign"
CRL_SIGN = "crl sign"
SERVER_AUTH = "server auth"
CLIENT_AUTH = "client auth"
ANY = "any"

# `signing` is Kubernetes' second word for `digital signature`; it is read, never written.
SYNONYMS = {"signing": DIGITAL_SIGNATURE}

KEY_USAGES = {
    DIGITAL_SIGNATURE: "digital_signature",
    "content commitment": "content_commitment",
    KEY_ENCIPHERMENT: "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    CERT_SIGN: "key_cert_sign",
    CRL_SIGN: "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}

# In the order of Go's ExtKeyUsage constants, which is the order Kubernetes' signer writes them in. `email protection`
# and `s/mime` are one usage in X.509; the first word is the one read back.
EXTENDED_USAGES = {
    ANY: "2.5.29.37.0",
    SERVER_AUTH: "1.3.6.1.5.5.7.3.1",
    CLIENT_AUTH: "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}

ALL = frozenset({*KEY_USAGES, *EXTENDED_USAGES, *SYNONYMS})

_ENCIPHER_ONLY = ("encipher_only", "decipher_only")


def canonical(words: Iterable[str]) -> frozenset[str]:
    """The words with synonyms resolved; an unknown one is refused by name."""
    resolved: set[str] = set()
    for word in words:
        if word not in ALL:
            raise errors.Refused(
                f"usage {word!r} is not known; one of: {', '.join(sorted(ALL))}", reason="UnknownUsage"
            )
        resolved.add(SYNONYMS.get(word, word))
    return frozenset(resolved)


def key_usage(words: Iterable[str]) -> x509.KeyUsage | None:
    """The key usage extension for those of the words that are key usages; None when there is none."""
    bits = {KEY_USAGES[word] for word in canonical(words) if word in KEY_USAGES}
    if not bits:
        return None
    # X.509 gives these two bits a meaning only beside keyAgreement, and the library refuses to write them alone.
    if "key_agreement" not in bits and bits.intersection(_ENCIPHER_ONLY):
        raise errors.Refused("encipher only and decipher only go with key agreement", reason="UnknownUsage")
    return x509.KeyUsage(**{bit: bit in bits for bit in KEY_USAGES.values()})


def extended_key_usage(words: Iterable[str]) -> x509.ExtendedKeyUsage | None:
    """The extended key usage extension, in Go's order; None when there is none."""
    chosen = canonical(words)
    oids = dict.fromkeys(oid for word, oid in EXTENDED_USAGES.items() if word in chosen)
    return x509.ExtendedKeyUsage([x509.ObjectIdentifier(oid) for oid in oids]) if oids else None


def words_of(key: x509.KeyUsage | None, extended: Iterable[x509.ObjectIdentifier]) -> frozenset[str]:
    """Kubernetes' words for what the extensions say; an extended usage without a word is its dotted OID."""
    words: set[str] = set()
    if key is not None:
        for word, bit in KEY_USAGES.items():
            # The library has no answer for the two bits unless keyAgreement is set.
            if (bit not in _ENCIPHER_ONLY or key.key_agreement) and getattr(key, bit):
                words.add(word)
    by_oid = {oid: word for word, oid in reversed(EXTENDED_USAGES.items())}
    words.update(by_oid.get(oid.dotted_string, oid.dotted_string) for oid in extended)
    return frozenset(words)
