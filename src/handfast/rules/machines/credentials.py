# SPDX-License-Identifier: Apache-2.0
"""The master's bootstrap credential: a signer for one purpose, and a client certificate that it signs once.

It is made before there is a cluster, so that it can be in a machine's first configuration. It writes nothing.

1. The signer's key signs one certificate and is forgotten. Whoever has everything that is kept cannot make a second one.
2. The signer may sign leaves only, and lives as long as the certificate: ten years. It ends when its ConfigMap is deleted.
3. The certificate is for the bootstrap identity: its user as common name, its groups as organizations, no other name.
4. Both are judged before anyone gets them: the chain as the API server judges it, the user and groups as the machine-approver
   does. A credential that nobody would accept is worse than none: the machine that has it waits for ever.
5. A second credential adds its signer to the bundle. The first one goes on until the bundle is without its signer.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_credentials.py |
|---|---|---|---|---|
| a thief of the files | the kubeconfig and the bundle | sign for another user | 1 | test_the_signers_key_is_nowhere_in_what_is_kept |
| … | … | sign a CA of their own below it | 1, 2 | test_the_signer_may_sign_leaves_only |
| a reader of logs | a printed credential | take its key | it does not print | test_a_credential_does_not_print_its_key |
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.api import objects
from handfast.pki import authority, bundles, chains, keys, names, pem, profiles, usages
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper

# 2. ten years of 365 days, as OpenShift's installer has it
LIFETIME: Final = 10 * profiles.YEAR
# As OpenShift's installer names it.
_UNIT: Final = ("2.5.4.11", "openshift")
_SUBJECT: Final = names.Subject(common_name=bootstrapper.USER, organizations=bootstrapper.GROUPS)
_SIGNER: Final = profiles.Profile(
    name="bootstrap-signer",
    usages=frozenset({usages.CERT_SIGN, usages.DIGITAL_SIGNATURE}),
    lifetime=LIFETIME,
    is_ca=True,
    path_length=0,
)
_CLIENT: Final = profiles.Profile(name="bootstrap-client", usages=profiles.CLIENT.usages, lifetime=LIFETIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A client certificate with its key, and the certificate of its signer. The key does not print."""

    signer: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    fingerprint: str
    expires: datetime.datetime


def master(now: datetime.datetime) -> Credential:
    """A new signer, and the one certificate that it ever signs."""
    # 1. the signer's key is never kept
    root = names.Subject(common_name=bootstrapper.SIGNER, others=(_UNIT,))
    signer = authority.self_signed_ca(root, keys.generate(), now, _SIGNER)
    key = keys.generate()
    # 3. for the bootstrap identity
    issued = signer.issue(key.public, _SUBJECT, names.Sans(), _CLIENT, now)
    _require_accepted(issued.der, signer, now)
    return Credential(
        signer=signer.certificate.der,
        certificate=issued.pem,
        key=key.to_pem(),
        fingerprint=issued.fingerprint,
        expires=issued.not_after,
    )


def _require_accepted(der: bytes, signer: authority.Authority, now: datetime.datetime) -> None:
    # 4. judged by the API server's rule, then by the machine-approver's
    verified = chains.verify([der], bundles.TrustBundle.of([signer.certificate.der]), chains.Client(), now)
    groups = (*verified.subject.organizations, user_names.AUTHENTICATED)
    check = bootstrapper.check(verified.subject.common_name, groups)
    if not check.passed:
        raise errors.Misuse(f"the machine-approver would not accept this credential: {check.compared}")


def bundle(signer: bytes, before: bytes = b"") -> bytes:
    """The bundle of this signer and of those that were in it before, as PEM (5)."""
    ders = pem.certificates_from_pem(before) if before else []
    return bundles.TrustBundle.of([*ders, signer]).to_pem()


def config_map(bundle_pem: bytes) -> objects.Document:
    """The ConfigMap that makes the bundle count, as seed 003 names it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": bootstrapper.CONFIG_MAP, "namespace": bootstrapper.CONFIG_NAMESPACE},
        "data": {bootstrapper.BUNDLE_KEY: bundle_pem.decode("ascii")},
    }


def manifest(bundle_pem: bytes) -> tuple[objects.Document, ...]:
    """That ConfigMap after its namespace, which a new cluster does not have."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bootstrapper.CONFIG_NAMESPACE}}
    return namespace, config_map(bundle_pem)
