# SPDX-License-Identifier: Apache-2.0
"""The control plane's own certificates: the serving pairs and the kubeconfigs, made, judged, renewed and issued again.

It does not decide which CA signs, nor what a data directory must hold: see `preparation`, whose checks of the serving pairs and
of the kubeconfigs are here.

1. A certificate is renewed when a third of its life is left. A serving one keeps its key, so that one rename changes
   the pair; a kubeconfig gets a new key.
2. What is judged is judged by the whole bundle: during a rotation certificates of either CA are good.
3. What is issued is issued by the CA that signs now.
4. The pair and the kubeconfig of the machine-config server are made where machines are admitted by inventory. Where they
   are there, they are kept good, whatever is admitted now.
"""

from __future__ import annotations

import datetime as dt
import pathlib
from collections.abc import Iterator
from typing import Final

import msgspec

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.datadir import layout
from handfast.pki import authority, bundles, certificates, chains, keys, names, pem, profiles
from handfast.rules import access, user_names
from handfast.runtime import files

CLUSTER: Final = "handfast"
# The one group that no policy can lock out: this file is the way back in.
ADMIN: Final = names.Subject(common_name="kubernetes-admin", organizations=(access.MASTERS,))
# The user that the default policy knows.
CONTROLLERS: Final = names.Subject(common_name=user_names.CONTROLLERS)
MAX_BYTES: Final = 1 << 20
RESTORE: Final = "restore it from a backup; it is not made anew, because what depends on it would be lost"
# … and the one that the machines' part of it knows.
MACHINE_CONFIG: Final = names.Subject(common_name=user_names.MACHINE_CONFIG_SERVER)


class Work(msgspec.Struct, kw_only=True):
    """One pass over a directory: where, at what instant, and what was done so far (path, verb)."""

    place: layout.Layout
    now: dt.datetime
    done: list[tuple[str, str]] = msgspec.field(default_factory=list)

    def write(self, path: pathlib.Path, data: bytes, verb: str, *, mode: int = 0o600) -> None:
        files.write_atomically(path, data, mode=mode)
        self.done.append((str(path.relative_to(self.place.root)), verb))


class Trust(msgspec.Struct, frozen=True):
    """Who signs, and whom clients are to trust: the text of the CA file, and the set of its certificates."""

    signer: authority.Authority
    text: bytes
    bundle: bundles.TrustBundle


class ServingPair(msgspec.Struct, frozen=True):
    """Where a serving certificate and its key are, and whose they are."""

    certificate: pathlib.Path
    key: pathlib.Path
    subject: names.Subject

    @property
    def hint(self) -> str:
        return f"remove {self.certificate} and {self.key} to have both made anew"


def kubeconfigs(place: layout.Layout, *, machines: bool = False) -> Iterator[tuple[pathlib.Path, names.Subject]]:
    """The kubeconfigs of a directory, and who they are for."""
    yield place.controllers_kubeconfig, CONTROLLERS
    # 4. where it is wanted, or there
    if machines or place.machine_config_kubeconfig.exists():
        yield place.machine_config_kubeconfig, MACHINE_CONFIG
    yield place.admin_kubeconfig, ADMIN


def serving_pairs(place: layout.Layout, *, machines: bool = False) -> Iterator[ServingPair]:
    """The serving pairs of a directory."""
    yield ServingPair(place.apiserver_certificate, place.apiserver_key, names.Subject(common_name="kube-apiserver"))
    # 4. where it is wanted, or there
    if machines or place.machine_config_certificate.exists():
        yield ServingPair(
            place.machine_config_certificate,
            place.machine_config_key,
            names.Subject(common_name="machine-config-server"),
        )


def renewal(certificate: certificates.Certificate) -> dt.datetime:
    """When a certificate is due (1)."""
    return certificate.not_after - (certificate.not_after - certificate.not_before) / 3


def fresh(certificate: certificates.Certificate, now: dt.datetime) -> bool:
    """Whether more than a third of its life is left."""
    return certificate.not_before <= now < renewal(certificate)


def due(place: layout.Layout) -> dt.datetime | None:
    """When the first of the certificates that are there is to be renewed."""
    held = [certificate(pair.certificate) for pair in serving_pairs(place) if pair.certificate.exists()]
    for path, _ in kubeconfigs(place):
        if path.exists():
            held.append(_held(path)[1])
    return min(map(renewal, held), default=None)


# --- the serving pairs


def serving_pair(work: Work, trust: Trust, pair: ServingPair, wanted: names.Sans) -> None:
    """Make it, or renew it where it runs out or does not name everything that is wanted."""
    certificate_path, key_path = pair.certificate, pair.key
    if certificate_path.exists() and not key_path.exists():
        raise errors.Refused(
            f"{key_path} is missing, while {certificate_path} is there",
            reason="DataDirectoryIncomplete",
            hint=f"restore it from a backup, or remove {certificate_path} to have both made anew",
        )
    verb, hint = "created", pair.hint
    if key_path.exists():
        key = private_key(key_path, hint=hint)
    else:
        key = keys.generate()
        work.write(key_path, key.to_pem(), verb)
    if certificate_path.exists():
        found = certificate(certificate_path, hint=hint)
        _require_ours(work, trust.bundle, pair, found, key)
        if fresh(found, work.now) and set(wanted.texts()) <= set(found.sans.texts()):
            return
        verb = "renewed"
    _issue_serving(work, trust.signer, pair, key, wanted, verb)


def _issue_serving(
    work: Work, signer: authority.Authority, pair: ServingPair, key: keys.PrivateKey, sans: names.Sans, verb: str
) -> None:
    issued = signer.issue(key.public, pair.subject, sans, profiles.APISERVER_SERVING, work.now)
    work.write(pair.certificate, issued.pem, verb)


def _require_ours(
    work: Work,
    bundle: bundles.TrustBundle,
    pair: ServingPair,
    certificate: certificates.Certificate,
    key: keys.PrivateKey,
) -> None:
    certificate_path, key_path, hint = pair.certificate, pair.key, pair.hint
    if certificate.public_key.spki != key.public.spki:
        mismatch = errors.Refused("the certificate and the private key do not belong together")
        raise unfit(certificate_path, key_path, mismatch, hint=hint)
    # One that has expired is issued anew in any case. The CA may have been renewed since, and not have been in force with it.
    if certificate.not_after < work.now:
        return
    # Judged at an instant inside its life, since whether it has begun is another question.
    instant = max(work.now, certificate.not_before)
    try:
        chains.verify([certificate.der], bundle, chains.Server("localhost"), instant)
    except errors.Refused as refused:
        raise errors.Refused(
            f"{certificate_path}: not a serving certificate of {work.place.ca_certificate}: {refused.message}",
            reason="DataDirectoryInconsistent",
            hint=hint,
        ) from None


# --- the kubeconfigs


def user_kubeconfig(work: Work, trust: Trust, path: pathlib.Path, subject: names.Subject, server: str) -> None:
    """Make it, or make it anew where it does not prove its user to this server any more."""
    verb = "created"
    if path.exists():
        if _proves(work, trust, path, subject, server):
            return
        verb = "renewed"
    _issue_kubeconfig(work, trust, path, subject, server, verb)


def _issue_kubeconfig(
    work: Work, trust: Trust, path: pathlib.Path, subject: names.Subject, server: str, verb: str
) -> None:
    key = keys.generate()
    issued = trust.signer.issue(key.public, subject, names.Sans(), profiles.CLIENT, work.now)
    text = kubeconfig.build(
        cluster=CLUSTER,
        server=server,
        ca=trust.text,
        user=subject.common_name,
        client_certificate=issued.pem,
        client_key=key.to_pem(),
    )
    work.write(path, text.encode(), verb)


def _proves(work: Work, trust: Trust, path: pathlib.Path, subject: names.Subject, server: str) -> bool:
    config, held, key = _held(path)
    if config.cluster.server != server or not _trusts(config, trust.bundle):
        return False
    if held.subject != subject or held.public_key.spki != key.public.spki:
        return False
    return _good(held, trust.bundle, chains.Client(), work.now) and fresh(held, work.now)


def _trusts(config: kubeconfig.Kubeconfig, bundle: bundles.TrustBundle) -> bool:
    """Whether a kubeconfig trusts exactly these CAs, in any order."""
    try:
        return bundles.TrustBundle.from_pem(config.cluster.certificate_authority_data or b"") == bundle
    except errors.Refused:
        return False


def _good(
    certificate: certificates.Certificate,
    bundle: bundles.TrustBundle,
    purpose: chains.Client | chains.Server,
    now: dt.datetime,
) -> bool:
    try:
        chains.verify([certificate.der], bundle, purpose, now)
    except errors.Refused:
        return False
    return True


def _held(path: pathlib.Path) -> tuple[kubeconfig.Kubeconfig, certificates.Certificate, keys.PrivateKey]:
    """A kubeconfig with the client certificate and the key in it."""
    data = files.read_private(path, limit=MAX_BYTES)
    try:
        return _credentials(data)
    except errors.Refused as refused:
        raise errors.Refused(
            f"{path}: {refused.message}",
            reason="DataDirectoryInconsistent",
            hint=f"remove {path} to have it made anew",
        ) from None


def _credentials(data: bytes) -> tuple[kubeconfig.Kubeconfig, certificates.Certificate, keys.PrivateKey]:
    try:
        config = kubeconfig.parse(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise errors.Refused("not text") from None
    user = config.user
    if user is None or user.client_certificate_data is None or user.client_key_data is None:
        raise errors.Refused("no client certificate and key in it")
    der = pem.certificates_from_pem(user.client_certificate_data)[0]
    return config, certificates.read(der), keys.private_from_pem(user.client_key_data)


# --- a rotation


def rewrite_kubeconfig_cas(work: Work, trust: Trust) -> None:
    """Have the kubeconfigs trust these CAs. Their client certificates stay as they are."""
    for path, subject in kubeconfigs(work.place):
        config, _, _ = _held(path)
        user = config.user
        if user is None or _trusts(config, trust.bundle):
            continue
        text = kubeconfig.build(
            cluster=CLUSTER,
            server=config.cluster.server,
            ca=trust.text,
            user=subject.common_name,
            client_certificate=user.client_certificate_data or b"",
            client_key=user.client_key_data or b"",
        )
        work.write(path, text.encode(), "renewed")


def reissue(work: Work, trust: Trust) -> None:
    """Issue again, by the CA that signs now, what another one issued; names and servers stay."""
    own = bundles.TrustBundle.of([trust.signer.certificate.der])
    place = work.place
    for pair in serving_pairs(place):
        found = certificate(pair.certificate, hint=pair.hint)
        if not _good(found, own, chains.Server("localhost"), work.now):
            key = private_key(pair.key, hint=pair.hint)
            _issue_serving(work, trust.signer, pair, key, found.sans, "renewed")
    for path, subject in kubeconfigs(place):
        config, held, _ = _held(path)
        if not _good(held, own, chains.Client(), work.now):
            _issue_kubeconfig(work, trust, path, subject, config.cluster.server, "renewed")


# --- files


def private_key(path: pathlib.Path, *, hint: str = RESTORE) -> keys.PrivateKey:
    """The key in a private file."""
    data = files.read_private(path, limit=MAX_BYTES)
    try:
        return keys.private_from_pem(data)
    except errors.Refused as refused:
        raise in_file(path, refused, hint=hint) from None


def certificate(path: pathlib.Path, *, hint: str = RESTORE) -> certificates.Certificate:
    """The one certificate in a file."""
    data = files.read(path, limit=MAX_BYTES)
    try:
        return certificates.read(pem.one(data, pem.CERTIFICATE))
    except errors.Refused as refused:
        raise in_file(path, refused, hint=hint) from None


def in_file(path: pathlib.Path, refused: errors.Refused, *, hint: str) -> errors.Refused:
    """A refusal of what a file holds, with its path."""
    return errors.Refused(f"{path}: {refused.message}", reason="DataDirectoryInconsistent", hint=hint)


def unfit(one: pathlib.Path, other: pathlib.Path, refused: errors.Refused, *, hint: str) -> errors.Refused:
    """A refusal of two files that do not belong together."""
    return errors.Refused(f"{one} and {other}: {refused.message}", reason="DataDirectoryInconsistent", hint=hint)
