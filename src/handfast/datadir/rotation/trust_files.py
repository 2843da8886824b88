# SPDX-License-Identifier: Apache-2.0
"""The files of a rotation: its state, both keys while either may sign, and what each step changes in the data directory.

It decides nothing (`rules.trust_rotation`) and talks to no API (`trust_objects`). Every function may be called again
after a crash at any point: it does what is still to be done.

1. The CA file, the key file and the file of public keys are each replaced by one rename. The key file alone says who signs.
   Every certificate or public key that it can mean is trusted already. So no signature is ever made that nobody believes.
2. A key is on disk, readable by its owner alone, before anything that depends on it is.
3. What does not fit together (a key that is not that of the CA which is to sign) changes nothing.
4. The keys of a rotation are removed when it ends, before its state is.
5. A CA is retired by its key: every certificate of that key goes, and while one is left it is not retired.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.datadir import layout, own_certificates, preparation
from handfast.pki import authority, bundles, issuers, jwt, keys, names, pem
from handfast.rules import trust_rotation
from handfast.runtime import files

_RESTORE: Final = "restore it from a backup"


class RotationDirectory(msgspec.Struct, frozen=True):
    """What a rotation keeps in a directory of its own."""

    path: pathlib.Path

    @classmethod
    def of(cls, place: layout.Layout, target: trust_rotation.Target) -> RotationDirectory:
        return cls(place.rotation(target))

    @property
    def _state(self) -> pathlib.Path:
        return self.path / "state.json"

    @property
    def old_key(self) -> pathlib.Path:
        return self.path / "old.key"

    @property
    def new_key(self) -> pathlib.Path:
        return self.path / "new.key"

    @property
    def new_certificate(self) -> pathlib.Path:
        return self.path / "new.crt"

    def read(self) -> trust_rotation.State | None:
        """The state; None where no rotation is under way."""
        if not self._state.exists():
            return None
        try:
            return trust_rotation.decode(files.read_private(self._state, limit=own_certificates.MAX_BYTES))
        except errors.Refused as refused:
            if refused.reason != trust_rotation.BAD_STATE:
                raise
            text = f"{self._state}: {refused.message}"
            raise errors.Refused(text, reason=refused.reason, hint=refused.hint) from None

    def write(self, state: trust_rotation.State) -> None:
        files.create_directory(self.path)
        files.write_atomically(self._state, trust_rotation.encode(state))

    def remove(self) -> None:
        """Remove what the rotation keeps, its keys before its state (4)."""
        for path in (self.old_key, self.new_key, self.new_certificate, self._state):
            path.unlink(missing_ok=True)
        files.remove_leftovers(self.path)


def _keep_old_key(work: own_certificates.Work, source: pathlib.Path, directory: RotationDirectory) -> None:
    # 2. on disk before the key file is replaced
    if not directory.old_key.exists():
        work.write(directory.old_key, own_certificates.private_key(source).to_pem(), "created")


def _ensure_new_key(work: own_certificates.Work, directory: RotationDirectory) -> keys.PrivateKey:
    # 2. on disk before anything depends on it
    if not directory.new_key.exists():
        work.write(directory.new_key, keys.generate().to_pem(), "created")
    return own_certificates.private_key(directory.new_key, hint=_RESTORE)


def _key_of(directory: RotationDirectory, state: trust_rotation.State, who: str) -> keys.PrivateKey:
    return own_certificates.private_key(directory.old_key if who == state.old else directory.new_key, hint=_RESTORE)


def _inconsistent(message: str) -> errors.Refused:
    return errors.Refused(message, reason="DataDirectoryInconsistent", hint=_RESTORE)


# --- the CA


def signing_ca(place: layout.Layout) -> str:
    """The fingerprint of the CA that signs."""
    return preparation.read_trust(place).signer.certificate.fingerprint


def add_ca(work: own_certificates.Work, directory: RotationDirectory) -> str:
    """Make the new CA and have it trusted beside the old one; its fingerprint."""
    place = work.place
    _keep_old_key(work, place.ca_key, directory)
    key = _ensure_new_key(work, directory)
    if directory.new_certificate.exists():
        new = authority.Authority(own_certificates.certificate(directory.new_certificate, hint=_RESTORE).der, key)
    else:
        # A name of its own: programs that look for an issuer by its name find one.
        subject = names.Subject(common_name=f"{preparation.CA_NAME}-{work.now:%Y%m%d%H%M%S}")
        new = authority.self_signed_ca(subject, key, work.now)
        work.write(directory.new_certificate, new.pem, "created")
    trust = preparation.read_trust(place)
    if new.certificate.der not in trust.bundle.ders:
        work.write(place.ca_certificate, trust.text + new.pem, "extended")
    own_certificates.rewrite_kubeconfig_cas(work, preparation.read_trust(place))
    return new.certificate.fingerprint


def switch_ca(work: own_certificates.Work, directory: RotationDirectory, state: trust_rotation.State) -> None:
    """Sign with the CA that stays."""
    place = work.place
    key = _key_of(directory, state, state.staying)
    data = files.read(place.ca_certificate, limit=own_certificates.MAX_BYTES)
    signer = issuers.choose(data, key)
    # 3. what does not fit together changes nothing
    if signer.certificate.fingerprint != state.staying:
        raise _inconsistent(
            f"{place.ca_certificate}: its certificate of the key that is to sign is not {state.staying}"
        )
    # 1. by one rename
    if own_certificates.private_key(place.ca_key).public != key.public:
        work.write(place.ca_key, key.to_pem(), "replaced")
    # For programs that read the first certificate only.
    if issuers.ordered(data, signer) != data:
        work.write(place.ca_certificate, issuers.ordered(data, signer), "reordered")


def reissue(work: own_certificates.Work) -> None:
    """Issue the control plane's own certificates anew, by the CA that signs."""
    own_certificates.reissue(work, preparation.read_trust(work.place))


def retire_ca(work: own_certificates.Work, directory: RotationDirectory, state: trust_rotation.State) -> None:
    """Stop trusting the leaving CA, if it was ever made."""
    place = work.place
    trust = preparation.read_trust(place)
    # 3. what does not fit together changes nothing
    if trust.signer.certificate.fingerprint != state.staying:
        raise _inconsistent(f"{place.ca_key}: the CA that signs is not {state.staying}, which is to stay")
    gone = trust.bundle.of_key(*leaving_ca(directory, state))
    if trust.signer.certificate.fingerprint in {anchor.fingerprint for anchor in gone}:
        raise _inconsistent(f"{directory.path}: the key that is to leave is that of {state.staying}, which is to stay")
    own_certificates.reissue(work, trust)
    # 5. with every certificate of its key
    if gone:
        rest = trust.bundle.retire(*(anchor.fingerprint for anchor in gone))
        work.write(place.ca_certificate, issuers.ordered(rest.to_pem(), trust.signer), "reduced")
    own_certificates.rewrite_kubeconfig_cas(work, preparation.read_trust(place))


def leaving_ca(directory: RotationDirectory, state: trust_rotation.State) -> tuple[str, ...]:
    """The leaving CA, as `TrustBundle.of_key` wants it: by its certificate and its key, as far as they are there.

    Where the first step was cut short, the state does not know yet what it made. Where the last one was, the key has
    been removed (4), and nothing is left to be retired.
    """
    key = directory.new_key if state.undoing else directory.old_key
    certificate = state.leaving
    if not certificate and directory.new_certificate.exists():
        certificate = own_certificates.certificate(directory.new_certificate, hint=_RESTORE).fingerprint
    public = own_certificates.private_key(key, hint=_RESTORE).public.fingerprint if key.exists() else ""
    return tuple(found for found in (certificate, public) if found)


def retained(place: layout.Layout, leaving: Sequence[str]) -> list[str]:
    """The CA file, where it has a certificate of this CA (5)."""
    return [str(place.ca_certificate)] if preparation.read_trust(place).bundle.of_key(*leaving) else []


def der_of(place: layout.Layout, fingerprint: str) -> bytes:
    """The certificate of a CA of the CA file."""
    found = bundles.TrustBundle.from_pem(files.read(place.ca_certificate, limit=own_certificates.MAX_BYTES))
    for anchor in found.anchors:
        if anchor.fingerprint == fingerprint:
            return anchor.der
    raise _inconsistent(f"{place.ca_certificate}: there is no CA {fingerprint} in it")


# --- the key of service account tokens


def signing_key_id(place: layout.Layout) -> str:
    """The id of the key that signs tokens."""
    return jwt.key_id(own_certificates.private_key(place.service_account_key).public)


def add_key(work: own_certificates.Work, directory: RotationDirectory) -> str:
    """Make the new key and have its tokens believed beside those of the old one; its id."""
    place = work.place
    _keep_old_key(work, place.service_account_key, directory)
    key = _ensure_new_key(work, directory)
    known = preparation.public_keys(place.service_account_public_key)
    if key.public not in known:
        work.write(place.service_account_public_key, _public_keys_pem([*known, key.public]), "extended")
    return jwt.key_id(key.public)


def switch_key(work: own_certificates.Work, directory: RotationDirectory, state: trust_rotation.State) -> None:
    """Sign tokens with the key that stays."""
    place = work.place
    key = _key_of(directory, state, state.staying)
    # 3. what does not fit together changes nothing
    if key.public not in preparation.public_keys(place.service_account_public_key):
        raise _inconsistent(f"{place.service_account_public_key}: there is no key {state.staying} in it")
    # 1. by one rename
    if own_certificates.private_key(place.service_account_key).public != key.public:
        work.write(place.service_account_key, key.to_pem(), "replaced")


def retire_key(work: own_certificates.Work, state: trust_rotation.State, leaving: str) -> None:
    """Stop accepting the tokens of a key."""
    place = work.place
    # 3. what does not fit together changes nothing
    if signing_key_id(place) != state.staying:
        raise _inconsistent(f"{place.service_account_key}: the key that signs is not {state.staying}, which is to stay")
    known = preparation.public_keys(place.service_account_public_key)
    rest = [public for public in known if jwt.key_id(public) != leaving]
    if rest != known:
        work.write(place.service_account_public_key, _public_keys_pem(rest), "reduced")


def new_key_id(directory: RotationDirectory) -> str:
    """The id of the key that was made for the rotation; empty where there is none yet."""
    return (
        jwt.key_id(own_certificates.private_key(directory.new_key, hint=_RESTORE).public)
        if directory.new_key.exists()
        else ""
    )


def _public_keys_pem(public_keys: list[keys.PublicKey]) -> bytes:
    return b"".join(pem.encode(pem.PUBLIC_KEY, public.spki) for public in public_keys)
