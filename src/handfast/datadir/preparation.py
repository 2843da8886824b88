# SPDX-License-Identifier: Apache-2.0
"""Makes a data directory whole: creates what is missing, renews what runs out, refuses what does not fit together.

It never replaces what it cannot make again. It does not serve. While a control plane runs it is called again and again,
and so beside `rotation.sequence`: both hold the lock of `pki` for as long as they work.

1. Directories are 0700, files with keys 0600. A directory that is not this user's, or that others may write to, is
   refused, and so is a private file that others may open.
2. The CA is made once. Its key is written before its certificate: a key alone, in a directory that nothing was issued
   in, is a first start cut short, and is completed. Anything else that is half there is refused, naming the file.
3. The CA's key belongs to a certificate of the CA file, which may hold several (`pki.issuers`), and that certificate is
   in force. An expired CA is refused, not replaced: everyone who trusts it would be locked out.
4. The key that seals the store is made once; it is never made anew beside a store that exists.
5. A serving pair was issued by a CA of the CA file. Its certificate is issued again, for the same key, when a third of
   its life is left or it does not name every address of the server. That of the machine-config server does not bear the
   names of the API server's Service. One that has expired is issued again without asking who had issued it: the CA may have been
   renewed since, for the same key.
6. The key pair that signs service account tokens is made once: the key first, then the public half, which must belong to
   it; others may stand beside it. A public half without its key is a loss, and refused.
7. The kubeconfigs hold certificates of these CAs for their users, trust the CAs of the CA file, and name the server;
   they are written again when one of these is not so. What people changed otherwise is left alone.
8. A CA of the operator's is taken over into a directory that has none. It may be an intermediate one: its certificate alone
   is the CA file, and so the anchor of everybody who trusts this cluster. Its root is not: other CAs below that root
   are none of this cluster's, and whoever they vouch for is a stranger here.
9. Where the CA file holds several CAs and no rotation is under way in this directory, one is under way at another server of the
   same store, and its files were copied here. Then what is not of the CA that signs now is issued again by that one: the other
   will be retired there, and nothing here would say so.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import pathlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.api import objects
from handfast.datadir import layout, mesh_logins
from handfast.datadir import own_certificates as own
from handfast.pki import authority, bundles, chains, issuers, keys, names, pem, profiles, seal
from handfast.rules import trust_rotation
from handfast.runtime import addresses, files

CA_NAME: Final = "handfast-ca"
SERVICE_NAMES: Final = (
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
)
# Less than this is left of the CA: time to think of the next one.
CA_WARNING: Final = dt.timedelta(days=180)
# Seconds that the other one of those who write keys is waited for.
_PATIENCE: Final = 30.0


@contextlib.contextmanager
def locked(place: layout.Layout, patience: float = _PATIENCE) -> Iterator[None]:
    """The keys of a directory as nobody else's to change; whoever changes them now is waited for."""
    lock = files.lock_directory(place.pki, patience=patience, queue=True)
    try:
        yield
    finally:
        lock.release()


@files.otherwise(layout.ELSEWHERE)
def prepare(
    place: layout.Layout,
    *,
    server: addresses.Address,
    advertise: Sequence[addresses.Address] = (),
    store: str = "store.db",
    settings: str = "",
    machine_config: addresses.Address | None = None,
    mesh: bool = False,
    now: dt.datetime,
    again: bool = False,
) -> list[tuple[str, str]]:
    """Make the directory ready for a server at `server`; what was created or renewed, in order.

    `settings` is written as its configuration file where there is none. `machine_config` is where machines fetch their
    configurations, if they do. With a `mesh` there is a kubeconfig for each of its services.
    `again`: it is being served meanwhile, so that what looks left over may be somebody's unfinished write.
    """
    work = own.Work(place=place, now=now)
    # 1. directories that are ours alone
    for directory in (place.root, place.pki):
        files.create_directory(directory)
        files.require_own_directory(directory)
        if not again:
            files.remove_leftovers(directory)
    with locked(place):
        trust = _trust(work, store)
        _seal_key(work, store)
        _service_account_pair(work)
        # 5. the serving pairs
        machines = machine_config is not None
        own_names = serving_names(server, advertise, _hostname())
        outside = () if machine_config is None else addresses.outward(machine_config)
        others = serving_names(machine_config or server, (server, *advertise, *outside), _hostname(), services=())
        for pair in own.serving_pairs(place, machines=machines):
            wanted = own_names if pair.certificate == place.apiserver_certificate else others
            own.serving_pair(work, trust, pair, wanted)
        # 7. the kubeconfigs
        for path, subject in own.kubeconfigs(place, machines=machines):
            own.user_kubeconfig(work, trust, path, subject, server.url("https"))
        # 9. a rotation at another server
        if len(trust.bundle.anchors) > 1 and not place.rotation(trust_rotation.Target.CA).exists():
            own.reissue(work, trust)
    if mesh:
        mesh_logins.prepare(work, server.url("https"), again=again)
    if settings and not place.config.exists():
        work.write(place.config, settings.encode(), "created")
    return work.done


@dataclass(frozen=True, slots=True)
class OwnAuthority:
    """A CA of the operator's that is fit to sign (8), and its key."""

    signer: authority.Authority
    key: keys.PrivateKey = field(repr=False)

    @classmethod
    def of(cls, certificate: bytes, key: bytes, now: dt.datetime) -> OwnAuthority:
        private = keys.private_from_pem(key)
        signer = issuers.choose(certificate, private)
        _tried(signer, now)
        return cls(signer, private)


@files.otherwise(layout.ELSEWHERE)
def adopt(place: layout.Layout, taken: OwnAuthority, now: dt.datetime) -> list[tuple[str, str]]:
    """Have a CA of the operator's sign in a directory that has none (8); one that is there has to be the same."""
    if place.ca_key.exists() or place.ca_certificate.exists():
        there = read_trust(place)
        if there.signer.certificate.der != taken.signer.certificate.der:
            raise errors.Refused(
                f"{place.ca_certificate}: there is another CA already, {there.signer.certificate.subject}",
                reason="CAExists",
                hint="name another directory with --dir; an existing CA is replaced with `handfast ca rotate`",
            )
        return []
    work = own.Work(place=place, now=now)
    for directory in (place.root, place.pki):
        files.create_directory(directory)
        files.require_own_directory(directory)
    with locked(place):
        _require_nothing_issued(place, "store.db", place.ca_key)
        work.write(place.ca_key, taken.key.to_pem(), "taken over")
        work.write(place.ca_certificate, taken.signer.pem, "taken over")
    return work.done


def _tried(signer: authority.Authority, now: dt.datetime) -> None:
    """Issue and verify a certificate that nobody keeps (8): what a client would refuse later is refused here."""
    key = keys.generate()
    issued = signer.issue(key.public, names.Subject(common_name="tried"), names.Sans(), profiles.CLIENT, now)
    chains.verify([issued.der], bundles.TrustBundle.of([signer.certificate.der]), chains.Client(), now)


def outlook(place: layout.Layout, now: dt.datetime) -> tuple[float, str | None]:
    """Of a prepared directory: seconds until the first renewal is due, and a warning of the CA's end, if it is near."""
    due = own.due(place)
    seconds = 0.0 if due is None else max(0.0, (due - now).total_seconds())
    ends = read_trust(place).signer.certificate.not_after
    if ends - now > CA_WARNING:
        return seconds, None
    return seconds, f"the CA ends on {ends:%Y-%m-%d}: run `handfast ca rotate` well before"


def read_trust(place: layout.Layout) -> own.Trust:
    """Who signs, and who is trusted, by the files of a directory."""
    key = own.private_key(place.ca_key)
    data = files.read(place.ca_certificate, limit=own.MAX_BYTES)
    # 3. the key belongs to a certificate of the CA file
    try:
        signer = issuers.choose(data, key)
        bundle = bundles.TrustBundle.from_pem(data)
    except errors.Refused as refused:
        raise own.unfit(place.ca_certificate, place.ca_key, refused, hint=own.RESTORE) from None
    return own.Trust(signer, issuers.ordered(data, signer), bundle)


def _trust(work: own.Work, store: str) -> own.Trust:
    place = work.place
    has_key, has_certificate = place.ca_key.exists(), place.ca_certificate.exists()
    # 2. made once: what is half there is refused
    if has_certificate and not has_key:
        raise _missing(place.ca_key, place.ca_certificate)
    if not has_certificate:
        _require_nothing_issued(place, store, place.ca_certificate if has_key else place.ca_key)
        ca = _new_authority(work, has_key=has_key)
        return own.Trust(ca, ca.pem, bundles.TrustBundle.of([ca.certificate.der]))
    trust = read_trust(place)
    ca = trust.signer
    if not ca.certificate.not_before <= work.now <= ca.certificate.not_after:
        raise errors.Refused(
            f"{place.ca_certificate}: the CA is in force from {ca.certificate.not_before:%Y-%m-%d %H:%M} to "
            f"{ca.certificate.not_after:%Y-%m-%d %H:%M} UTC, and now it is {work.now:%Y-%m-%d %H:%M}",
            reason="CertificateExpired",
            hint="if this machine's clock is right, renew the CA's certificate for its key; see `handfast explain CertificateExpired`",
        )
    return trust


def _new_authority(work: own.Work, *, has_key: bool) -> authority.Authority:
    key = own.private_key(work.place.ca_key) if has_key else keys.generate()
    ca = authority.self_signed_ca(names.Subject(common_name=CA_NAME), key, work.now)
    if not has_key:
        work.write(work.place.ca_key, key.to_pem(), "created")
    work.write(work.place.ca_certificate, ca.pem, "created")
    return ca


def _require_nothing_issued(place: layout.Layout, store: str, missing: pathlib.Path) -> None:
    """Refuse a directory in which something was issued (2): there the CA existed, and was lost."""
    later = (
        place.apiserver_certificate,
        place.apiserver_key,
        place.encryption_key,
        place.controllers_kubeconfig,
        place.admin_kubeconfig,
        place.store(store),
    )
    for path in later:
        if path.exists():
            raise _missing(missing, path)


def _seal_key(work: own.Work, store: str) -> None:
    path = work.place.encryption_key
    if path.exists():
        data = files.read_private(path, limit=own.MAX_BYTES)
        try:
            # What is not ASCII is no key either, and is refused as such.
            seal.Sealer.from_text(data.decode("ascii", "replace"))
        except errors.Refused as refused:
            raise own.in_file(path, refused, hint=own.RESTORE) from None
        return
    # 4. never made anew beside a store that exists
    kept = work.place.store(store)
    if kept.exists():
        raise _missing(path, kept)
    work.write(path, _new_seal_key(work.now), "created")


def ensure_seal_key(place: layout.Layout, now: dt.datetime) -> None:
    """Make the key that seals, where there is none: for a store that holds nothing sealed with another one."""
    if not place.encryption_key.exists():
        work = own.Work(place=place, now=now)
        work.write(place.encryption_key, _new_seal_key(now), "created")


def _new_seal_key(now: dt.datetime) -> bytes:
    return seal.generate_line(f"key-{now:%Y%m%d}").encode("ascii")


def _service_account_pair(work: own.Work) -> None:
    key_path, public_path = work.place.service_account_key, work.place.service_account_public_key
    # 6. a public half without its key is a loss
    if public_path.exists() and not key_path.exists():
        raise _missing(key_path, public_path)
    if key_path.exists():
        key = own.private_key(key_path)
    else:
        key = keys.generate()
        work.write(key_path, key.to_pem(), "created")
    if not public_path.exists():
        work.write(public_path, pem.encode(pem.PUBLIC_KEY, key.public.spki), "created")
    elif key.public.spki not in {public.spki for public in public_keys(public_path)}:
        mismatch = errors.Refused("the two keys do not belong together")
        raise own.unfit(public_path, key_path, mismatch, hint=own.RESTORE)


def public_keys(path: pathlib.Path) -> list[keys.PublicKey]:
    """The keys whose tokens count, in the order of the file; at least one."""
    data = files.read(path, limit=own.MAX_BYTES)
    try:
        return keys.publics_from_pem(data)
    except errors.Refused as refused:
        raise own.in_file(path, refused, hint=own.RESTORE) from None


def serving_names(
    server: addresses.Address,
    advertise: Sequence[addresses.Address],
    hostname: str,
    *,
    services: Sequence[str] = (*SERVICE_NAMES, objects.KUBERNETES_SERVICE_IP),
) -> names.Sans:
    """Every name and address by which a server is called: the API server, unless other `services` than its own are named."""
    hosts = ["localhost", hostname, "127.0.0.1", "::1", *services]
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


def _missing(path: pathlib.Path, witness: pathlib.Path) -> errors.Refused:
    return errors.Refused(
        f"{path} is missing, while {witness} is there", reason="DataDirectoryIncomplete", hint=own.RESTORE
    )
