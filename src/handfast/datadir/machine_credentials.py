# SPDX-License-Identifier: Apache-2.0
"""Keeps the master's bootstrap credential in a directory, for machines that exist before the cluster does.

What the credential is, and who accepts it, is `rules.machines.credentials`. No API is called: the manifest is applied by
whoever installs the cluster.

1. The directory is 0700 if it is made here, and refused if others may write to it. Kubeconfigs are 0600.
2. The kubeconfig is written last. Where it is there, everything is. A start that was cut short leaves at most a signer in
   the bundle whose key nobody has.
3. A kubeconfig that is there is never replaced: a machine may have it. The next one gets the next number, and the bundle
   trusts both.
"""

from __future__ import annotations

import datetime
import itertools
import pathlib
from typing import Final

import msgspec
import yaml

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.pki import bundles, certificates, pem
from handfast.rules.machines import bootstrapper, credentials
from handfast.runtime import files

BUNDLE_FILE: Final = f"{bootstrapper.BUNDLE}.crt"
MANIFEST_FILE: Final = f"{bootstrapper.CONFIG_MAP}.yaml"
KUBECONFIG_FILE: Final = "kubeconfig-kubelet"
# Says that the first credential counted in a cluster.
COUNTED_FILE: Final = "counted"
_USER: Final = "kubelet"
_CLUSTER: Final = "handfast"
_MAX_BYTES: Final = 1 << 20
# More credentials than anybody hands out.
_MOST: Final = 64


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Where a credential is, and what it is."""

    kubeconfig: pathlib.Path
    bundle: pathlib.Path
    manifest: pathlib.Path
    fingerprint: str
    expires: datetime.datetime
    # How many signers the bundle trusts.
    signers: int


def create(directory: pathlib.Path, server: str, server_ca: bytes | None, now: datetime.datetime) -> Kept:
    """Make a credential for `server` in this directory, beside those that are there."""
    # 1. a directory that is ours alone
    files.create_directory(directory)
    files.require_own_directory(directory)
    target = _free(directory)
    credential = credentials.master(now)
    bundle = _bundle(directory / BUNDLE_FILE, credential.signer)
    manifest = yaml.safe_dump_all(credentials.manifest(bundle), sort_keys=False)
    text = _kubeconfig(server, server_ca, credential)
    files.write_atomically(directory / BUNDLE_FILE, bundle, mode=0o644)
    files.write_atomically(directory / MANIFEST_FILE, manifest.encode("ascii"), mode=0o644)
    # 2. the kubeconfig last
    files.write_atomically(target, text.encode("utf-8"))
    return Kept(
        kubeconfig=target,
        bundle=directory / BUNDLE_FILE,
        manifest=directory / MANIFEST_FILE,
        fingerprint=credential.fingerprint,
        expires=credential.expires,
        signers=len(pem.certificates_from_pem(bundle)),
    )


def has_counted(directory: pathlib.Path) -> bool:
    """Whether the first credential of a directory counted in a cluster."""
    return (directory / COUNTED_FILE).exists()


def note_counted(directory: pathlib.Path) -> None:
    """Write down that it counts from now on."""
    files.write_atomically(directory / COUNTED_FILE, b"the first credential here was made to count in a cluster\n")


def first(directory: pathlib.Path) -> Kept | None:
    """The first credential of a directory; None where there is none, or where its making was cut short (2)."""
    path = directory / KUBECONFIG_FILE
    if not path.exists():
        return None
    user = kubeconfig.parse(files.read_private(path, limit=_MAX_BYTES).decode("utf-8", "replace")).user
    data = None if user is None else user.client_certificate_data
    if data is None:
        raise errors.Refused(f"{path}: there is no client certificate in it", reason="BadKubeconfig")
    certificate = certificates.read(pem.certificates_from_pem(data)[0])
    return Kept(
        kubeconfig=path,
        bundle=directory / BUNDLE_FILE,
        manifest=directory / MANIFEST_FILE,
        fingerprint=certificate.fingerprint,
        expires=certificate.not_after,
        signers=len(pem.certificates_from_pem(files.read(directory / BUNDLE_FILE, limit=_MAX_BYTES))),
    )


def _free(directory: pathlib.Path) -> pathlib.Path:
    # 3. the next number
    numbered = (directory / f"{KUBECONFIG_FILE}-{number}" for number in range(2, _MOST + 1))
    for path in itertools.chain([directory / KUBECONFIG_FILE], numbered):
        if not path.exists():
            return path
    raise errors.Refused(
        f"{directory} has {_MOST} credentials already",
        reason="TooManyCredentials",
        hint="remove those that no machine uses any more, or name another directory with --out",
    )


def _bundle(path: pathlib.Path, signer: bytes) -> bytes:
    before = files.read(path, limit=_MAX_BYTES) if path.exists() else b""
    try:
        return credentials.bundle(signer, before)
    except errors.Refused as refused:
        raise errors.Refused(
            f"{path}: {refused.message}",
            reason=refused.reason,
            hint="mend it, or move it away: then only the new signer is trusted",
        ) from None


def _kubeconfig(server: str, server_ca: bytes | None, credential: credentials.Credential) -> str:
    if server_ca is not None:
        # What is no CA would be found out by the first machine.
        bundles.TrustBundle.from_pem(server_ca)
    return kubeconfig.render(
        kubeconfig.Kubeconfig(
            context=_USER,
            cluster=kubeconfig.Cluster(name=_CLUSTER, server=server, certificate_authority_data=server_ca),
            user=kubeconfig.User(
                name=_USER, client_certificate_data=credential.certificate, client_key_data=credential.key
            ),
        )
    )
