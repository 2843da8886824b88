# SPDX-License-Identifier: Apache-2.0
"""Which CA signs for which signer: pairs of files, read again when they change. It signs nothing itself (`certificates.signer`).

1. A pair that was named holds exactly one certificate, of a CA, and its key. That of a data directory may hold several
   while its CA is being replaced: the one of the key signs.
2. Whether a file is another one is looked at before every signature, which costs two system calls. So a new CA counts from
   the next certificate on, without a restart.
3. Files that do not fit together, as between the writes of a certificate and of its key, are logged once. Until they fit,
   the last good pair goes on signing. At the start there is no last good pair, and nothing starts.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import msgspec

from handfast import errors
from handfast.pki import authority, issuers, keys, pem
from handfast.runtime import clock as clocks
from handfast.runtime import files, following

_LIMIT = 1 << 20


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Where a CA and its key are; `bundle` allows for several certificates (1)."""

    certificate: pathlib.Path
    key: pathlib.Path
    bundle: bool = False


class SigningAuthority:
    """One pair of files, as the CA that they are now."""

    def __init__(self, pair_files: Files, clock: clocks.Clock) -> None:
        self._pair_files = pair_files
        # Looked at before it is read: what changes in between is seen at the next look.
        self._follower = following.Follower((pair_files.certificate, pair_files.key), self._load, clock)
        self._load()

    def current(self) -> authority.Authority:
        """The CA by the files as they are now (2)."""
        self._follower.look()
        return self._authority

    def _load(self) -> None:
        pair_files = self._pair_files
        key = _in_file(pair_files.key, files.read_private(pair_files.key, limit=_LIMIT))
        data = files.read(pair_files.certificate, limit=_LIMIT)
        try:
            # 1. one certificate, unless the file is a bundle
            if pair_files.bundle:
                self._authority = issuers.choose(data, key)
            else:
                self._authority = authority.Authority(pem.one(data, pem.CERTIFICATE), key)
        except errors.Refused as refused:
            raise errors.Refused(
                f"{pair_files.certificate} and {pair_files.key}: {refused.message}",
                reason="BadSigningAuthority",
                hint="the certificate file is to hold exactly one certificate, of a CA, and the key file its private key",
            ) from None


def _in_file(path: pathlib.Path, data: bytes) -> keys.PrivateKey:
    try:
        return keys.private_from_pem(data)
    except errors.Refused as refused:
        raise errors.Refused(f"{path}: {refused.message}", reason="BadSigningAuthority") from None


class SigningAuthorities:
    """The CA of each signer that has one; signers with the same files share it."""

    def __init__(self, files_of: Mapping[str, Files], clock: clocks.Clock) -> None:
        by_files = {pair_files: SigningAuthority(pair_files, clock) for pair_files in dict.fromkeys(files_of.values())}
        self._by_signer = {signer: by_files[pair_files] for signer, pair_files in files_of.items()}

    def __contains__(self, signer: str) -> bool:
        return signer in self._by_signer

    def current(self, signer: str) -> authority.Authority:
        """The CA that signs for a signer now."""
        return self._by_signer[signer].current()
