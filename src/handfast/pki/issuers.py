# SPDX-License-Identifier: Apache-2.0
"""Which of several CA certificates a key signs for: a bundle file and a key in, the authority out. It trusts nobody.

During a rotation the CA file holds the old and the new certificate, and the key file one key. The key alone says
which of them signs. So replacing that one file switches the signer, at one instant and without a half-way state.

1. Every certificate of the file is read; one that belongs to the key must be there.
2. Of several for the same key (a CA certificate that was renewed) the one that ends last signs.
"""

from __future__ import annotations

from handfast import errors
from handfast.pki import authority, certificates, keys, pem


def choose(data: bytes, key: keys.PrivateKey) -> authority.Authority:
    """The authority of this key among the certificates (PEM); Refused where none belongs to it."""
    # 1. one certificate belongs to the key
    offered = [certificates.read(der) for der in pem.certificates_from_pem(data)]
    own = [certificate for certificate in offered if certificate.public_key.spki == key.public.spki]
    if not own:
        raise errors.Refused(
            "the CA certificate and the private key do not belong together"
            if len(offered) == 1
            else f"none of the {len(offered)} CA certificates belongs to the private key",
            reason="BadAuthority",
        )
    # 2. of several, the one that ends last
    return authority.Authority(max(own, key=lambda certificate: certificate.not_after).der, key)


def ordered(data: bytes, signer: authority.Authority) -> bytes:
    """The same certificates with the signer's first, each once: programs that read one certificate take the first."""
    ders = dict.fromkeys((signer.certificate.der, *pem.certificates_from_pem(data)))
    return pem.certificates_to_pem(ders)
