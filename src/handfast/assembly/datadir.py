# SPDX-License-Identifier: Apache-2.0
"""Makes a data directory whole: creates what is missing, renews what runs out, refuses what does not fit together.

It never replaces what it cannot make again. It does not serve, and it keeps no lock: the caller owns the directory.

1. Directories are 0700, files with keys 0600. A directory that is not this user's, or that others may write to, is
   refused, and so is a private file that others may open.
2. The CA is made once. Its key is written before its certificate: a key alone, in a directory that nothing was issued
   in, is a first start cut short, and is completed. Anything else that is half there is refused, naming the file.
3. The CA's key belongs to its certificate, and the certificate is in force. An expired CA is refused, not replaced:
   everyone who trusts it would be locked out.
4. The key that seals the store is made once; it is never made anew beside a store that exists.
5. The serving pair was issued by the CA. Its certificate is issued again, for the same key, when a third of its life is
   left or it does not name every address of the server.
6. The key pair that signs service account tokens is made once: the key first, then the public half, which must belong to
   it. A public half without its key is a loss, and refused.
7. The kubeconfigs hold certificates of the CA for their users and name the server; they are written again when one of
   these is not so. What people changed otherwise is left alone.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import pathlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from handfast import errors
from handfast.api import objects
from handfast.assembly import config, endpoints, layout
from handfast.bootstrap import kubeconfig
from handfast.pki import authority, bundles, certificates, chains, keys, names, pem, profiles, seal
from handfast.rules import access
from handfast.runtime import files

CLUSTER = "handfast"
CA_NAME = "handfast-ca"
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
# The one group that no policy can lock out: this file is the way back in.
ADMIN = names.Subject(common_name="kubernetes-admin", organizations=(access.MASTERS,))
# The user that the default policy knows.
CONTROLLERS_USER = "system:kube-controller-manager"
CONTROLLERS = names.Subject(common_name=CONTROLLERS_USER)
_MAX_BYTES = 1 << 20
_RESTORE = "restore it from a backup; it is not made anew, because what depends on it would be lost"


@dataclass(slots=True, kw_only=True)
class _Work:
    """One preparation: where, for which server, at what instant, and what was done so far (path, verb)."""

    place: layout.Layout
    server: endpoints.Address
    advertise: Sequence[endpoints.Address]
    store: str
    now: dt.datetime
    done: list[tuple[str, str]] = field(default_factory=list)

    def write(self, path: pathlib.Path, data: bytes, verb: str, *, mode: int = 0o600) -> None:
        files.write_atomically(path, data, mode=mode)
        self.done.append((str(path.relative_to(self.place.root)), verb))


@files.otherwise(layout.ELSEWHERE)
def prepare(
    place: layout.Layout,
    *,
    server: endpoints.Address,
    advertise: Sequence[endpoints.Address] = (),
    store: str = "store.db",
    now: dt.datetime,
) -> list[tuple[str, str]]:
    """Make the directory ready for a server at `server`; what was created or renewed, in order."""
    work = _Work(place=place, server=server, advertise=advertise, store=store, now=now)
    # 1.
    for directory in (place.root, place.pki):
        files.create_directory(directory)
        files.require_own_directory(directory)
        files.remove_leftovers(directory)
    ca = _authority(work)
    _seal_key(work)
    _service_account_pair(work)
    _serving_pair(work, ca)
    _kubeconfig(work, ca, place.controllers_kubeconfig, CONTROLLERS)
    _kubeconfig(work, ca, place.admin_kubeconfig, ADMIN)
    if not place.config.exists():
        work.write(place.config, config.template().encode(), "created")
    return work.done


def _authority(work: _Work) -> authority.Authority:
    place = work.place
    has_key, has_certificate = place.ca_key.exists(), place.ca_certificate.exists()
    # 2.
    if has_certificate and not has_key:
        raise _missing(place.ca_key, place.ca_certificate)
    if not has_certificate:
        _require_nothing_issued(work, place.ca_certificate if has_key else place.ca_key)
        return _new_authority(work, has_key=has_key)
    key = _private_key(place.ca_key)
    found = _certificate(place.ca_certificate)
    # 3.
    try:
        ca = authority.Authority(found.der, key)
    except errors.Refused as refused:
        raise _unfit(place.ca_certificate, place.ca_key, refused, hint=_RESTORE) from None
    if not ca.certificate.not_before <= work.now <= ca.certificate.not_after:
        raise errors.Refused(
            f"{place.ca_certificate}: the CA is in force from {ca.certificate.not_before:%Y-%m-%d %H:%M} to "
            f"{ca.certificate.not_after:%Y-%m-%d %H:%M} UTC, and now it is {work.now:%Y-%m-%d %H:%M}",
            reason="CertificateExpired",
            hint="if this machine's clock is right, a new CA is needed, and everyone who trusts this one has to learn it",
        )
    return ca


def _new_authority(work: _Work, *, has_key: bool) -> authority.Authority:
    key = _private_key(work.place.ca_key) if has_key else keys.generate()
    ca = authority.self_signed_ca(names.Subject(common_name=CA_NAME), key, work.now)
    if not has_key:
        work.write(work.place.ca_key, key.to_pem(), "created")
    work.write(work.place.ca_certificate, ca.pem, "created")
    return ca


def _require_nothing_issued(work: _Work, missing: pathlib.Path) -> None:
    """2: whatever only exists after the CA shows that the CA was there and got lost."""
    place = work.place
    later = (
        place.apiserver_certificate,
        place.apiserver_key,
        place.encryption_key,
        place.controllers_kubeconfig,
        place.admin_kubeconfig,
        place.store(work.store),
    )
    for path in later:
        if path.exists():
            raise _missing(missing, path)


def _seal_key(work: _Work) -> None:
    path = work.place.encryption_key
    if path.exists():
        data = files.read_private(path, limit=_MAX_BYTES)
        try:
            # What is not ASCII is no key either, and is refused as such.
            seal.Sealer.from_text(data.decode("ascii", "replace"))
        except errors.Refused as refused:
            raise _in_file(path, refused, hint=_RESTORE) from None
        return
    # 4.
    store = work.place.store(work.store)
    if store.exists():
        raise _missing(path, store)
    work.write(path, seal.generate_line(f"key-{work.now:%Y%m%d}").encode("ascii"), "created")


def _service_account_pair(work: _Work) -> None:
    key_path, public_path = work.place.service_account_key, work.place.service_account_public_key
    # 6.
    if public_path.exists() and not key_path.exists():
        raise _missing(key_path, public_path)
    if key_path.exists():
        key = _private_key(key_path)
    else:
        key = keys.generate()
        work.write(key_path, key.to_pem(), "created")
    wanted = pem.encode(pem.PUBLIC_KEY, key.public.spki)
    if not public_path.exists():
        work.write(public_path, wanted, "created")
    elif files.read(public_path, limit=_MAX_BYTES) != wanted:
        mismatch = errors.Refused("the two keys do not belong together")
        raise _unfit(public_path, key_path, mismatch, hint=_RESTORE)


def serving_names(server: endpoints.Address, advertise: Sequence[endpoints.Address], hostname: str) -> names.Sans:
    """Every name and address by which the API server is called."""
    hosts = ["localhost", hostname, *SERVICE_NAMES, "127.0.0.1", "::1", objects.KUBERNETES_SERVICE_IP]
    hosts += [address.host for address in (server, *advertise)]
    dns: dict[str, None] = {}
    ip: dict[names.IP, None] = {}
    for host in hosts:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            if host:
                dns[host.lower().rstrip(".")] = None
        else:
            # A wildcard is a place to listen, not one to call.
            if not address.is_unspecified:
                ip[address] = None
    return names.make_sans(dns=dns, ip=ip)


def _hostname() -> str:
    """This machine's name, or nothing where it is none that a certificate can carry."""
    try:
        return names.dns_name(socket.gethostname())
    except errors.Refused:
        return ""


def _serving_pair(work: _Work, ca: authority.Authority) -> None:
    certificate_path, key_path = work.place.apiserver_certificate, work.place.apiserver_key
    wanted = serving_names(work.server, work.advertise, _hostname())
    if certificate_path.exists() and not key_path.exists():
        raise errors.Refused(
            f"{key_path} is missing, while {certificate_path} is there",
            reason="DataDirectoryIncomplete",
            hint=f"restore it from a backup, or remove {certificate_path} to have both made anew",
        )
    verb, hint = "created", f"remove {certificate_path} and {key_path} to have both made anew"
    if key_path.exists():
        key = _private_key(key_path, hint=hint)
    else:
        key = keys.generate()
        work.write(key_path, key.to_pem(), verb)
    if certificate_path.exists():
        found = _certificate(certificate_path, hint=hint)
        # 5.
        _require_ours(work, ca, found, key, hint)
        if _fresh(found, work.now) and set(wanted.texts()) <= set(found.sans.texts()):
            return
        verb = "renewed"
    issued = ca.issue(
        key.public, names.Subject(common_name="kube-apiserver"), wanted, profiles.APISERVER_SERVING, work.now
    )
    work.write(certificate_path, issued.pem, verb)


def _require_ours(
    work: _Work, ca: authority.Authority, found: certificates.Certificate, key: keys.PrivateKey, hint: str
) -> None:
    certificate_path, key_path = work.place.apiserver_certificate, work.place.apiserver_key
    if found.public_key.spki != key.public.spki:
        mismatch = errors.Refused("the certificate and the private key do not belong together")
        raise _unfit(certificate_path, key_path, mismatch, hint=hint)
    # Judged at an instant inside its life, since whether it has expired is another question.
    instant = min(max(work.now, found.not_before), found.not_after)
    try:
        chains.verify([found.der], bundles.TrustBundle.of([ca.certificate.der]), chains.Server("localhost"), instant)
    except errors.Refused as refused:
        raise errors.Refused(
            f"{certificate_path}: not a serving certificate of {work.place.ca_certificate}: {refused.message}",
            reason="DataDirectoryInconsistent",
            hint=hint,
        ) from None


def _fresh(found: certificates.Certificate, now: dt.datetime) -> bool:
    """Whether more than a third of its life is left."""
    return found.not_before <= now and (found.not_after - now) * 3 > found.not_after - found.not_before


def _kubeconfig(work: _Work, ca: authority.Authority, path: pathlib.Path, subject: names.Subject) -> None:
    # 7.
    server = work.server.url("https")
    verb = "created"
    if path.exists():
        if _kubeconfig_is_good(work, ca, path, subject, server):
            return
        verb = "renewed"
    key = keys.generate()
    issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, work.now)
    text = kubeconfig.build(
        cluster=CLUSTER,
        server=server,
        ca=ca.pem,
        user=subject.common_name,
        client_certificate=issued.pem,
        client_key=key.to_pem(),
    )
    work.write(path, text.encode(), verb)


def _kubeconfig_is_good(
    work: _Work, ca: authority.Authority, path: pathlib.Path, subject: names.Subject, server: str
) -> bool:
    data = files.read_private(path, limit=_MAX_BYTES)
    try:
        found, certificate, key = _credentials(data)
    except errors.Refused as refused:
        raise errors.Refused(
            f"{path}: {refused.message}",
            reason="DataDirectoryInconsistent",
            hint=f"remove {path} to have it made anew",
        ) from None
    if found.cluster.certificate_authority_data != ca.pem or found.cluster.server != server:
        return False
    if certificate.subject != subject or certificate.public_key.spki != key.public.spki:
        return False
    try:
        chains.verify([certificate.der], bundles.TrustBundle.of([ca.certificate.der]), chains.Client(), work.now)
    except errors.Refused:
        return False
    return _fresh(certificate, work.now)


def _credentials(data: bytes) -> tuple[kubeconfig.Kubeconfig, certificates.Certificate, keys.PrivateKey]:
    try:
        found = kubeconfig.parse(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise errors.Refused("not text") from None
    user = found.user
    if user is None or user.client_certificate_data is None or user.client_key_data is None:
        raise errors.Refused("no client certificate and key in it")
    der = pem.certificates_from_pem(user.client_certificate_data)[0]
    return found, certificates.read(der), keys.private_from_pem(user.client_key_data)


def _private_key(path: pathlib.Path, *, hint: str = _RESTORE) -> keys.PrivateKey:
    data = files.read_private(path, limit=_MAX_BYTES)
    try:
        return keys.private_from_pem(data)
    except errors.Refused as refused:
        raise _in_file(path, refused, hint=hint) from None


def _certificate(path: pathlib.Path, *, hint: str = _RESTORE) -> certificates.Certificate:
    data = files.read(path, limit=_MAX_BYTES)
    try:
        return certificates.read(pem.one(data, pem.CERTIFICATE))
    except errors.Refused as refused:
        raise _in_file(path, refused, hint=hint) from None


def _in_file(path: pathlib.Path, refused: errors.Refused, *, hint: str) -> errors.Refused:
    return errors.Refused(f"{path}: {refused.message}", reason="DataDirectoryInconsistent", hint=hint)


def _unfit(certificate: pathlib.Path, key: pathlib.Path, refused: errors.Refused, *, hint: str) -> errors.Refused:
    return errors.Refused(f"{certificate} and {key}: {refused.message}", reason="DataDirectoryInconsistent", hint=hint)


def _missing(path: pathlib.Path, witness: pathlib.Path) -> errors.Refused:
    return errors.Refused(
        f"{path} is missing, while {witness} is there", reason="DataDirectoryIncomplete", hint=_RESTORE
    )
