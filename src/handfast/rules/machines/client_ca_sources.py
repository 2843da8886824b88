# SPDX-License-Identifier: Apache-2.0
"""The ConfigMaps that give client CAs: which there are, which of them count for the bootstrap identity alone, and what one holds.

It merges nothing (`client_cas`), and follows nothing.

What a source gives, by its key `ca-bundle.crt`:

1. One that is being deleted gives nothing: a finalizer cannot keep trust alive.
2. Without that key, or with nothing in it, it gives nothing, and that is no mistake.
3. With a private key in PEM anywhere in it, in `data` or in `binaryData`, it gives nothing. Whoever may read ConfigMaps has that key now.
4. Each certificate that is whole and one of a CA is given. What else is there is reported, without being shown, and
   takes no other certificate with it. Nothing is remembered: what a broken edit took away is not given any more.
5. The same certificate twice counts once.
6. A bootstrap ConfigMap gives only CAs with the common name of that signer. The TLS library finds an issuer by its name, and
   may take the wrong one of two: a CA that calls itself as the administrators' does would break their handshakes.
7. And it gives them until the instant that it names, if it names one (`credential_end`). What is no instant is a mistake, and
   it gives nothing then.
"""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.pki import certificates, pem
from handfast.rules.machines import bootstrapper, credential_end

KEY: Final = bootstrapper.BUNDLE_KEY
_OPERATOR: Final = "openshift-kube-apiserver-operator"
# Where CAs come from that may sign for anyone, in the order of the kube-apiserver operator.
UNSCOPED: Final = (
    (bootstrapper.CONFIG_NAMESPACE, "admin-kubeconfig-client-ca"),
    (bootstrapper.MANAGED_NAMESPACE, "csr-controller-ca"),
    (_OPERATOR, "kube-apiserver-to-kubelet-client-ca"),
    (_OPERATOR, "kube-control-plane-signer-ca"),
    ("openshift-kube-apiserver", "user-client-ca"),
    (_OPERATOR, "node-system-admin-ca"),
)
# And those that are good for the bootstrap identity alone.
BOOTSTRAP: Final = bootstrapper.CONFIG_MAPS
ALL: Final = (*UNSCOPED[:5], *BOOTSTRAP, *UNSCOPED[5:])
NAMES: Final = frozenset(name for _, name in ALL)

# Reasons of what is wrong with a source.
UNREADABLE: Final = "ClientCASourceUnreadable"
MISNAMED: Final = "BootstrapCAMisnamed"
PRIVATE_KEY: Final = "PrivateKeyInClientCASource"

MISNAMED_SAID: Final = f"a CA of bootstrap credentials has the common name {bootstrapper.SIGNER}"
_BEGIN: Final = re.compile(r"^[ \t]*-----BEGIN ", re.MULTILINE)
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_SAID: Final = (
    "there is a private key in it, which everyone who may read ConfigMaps now has: nothing of it counts; "
    "take it out, make a new CA, and retire this one"
)


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a source: a reason, and a sentence that shows nothing of its content."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a source gives, in its order, and what is wrong with it."""

    certificates: tuple[certificates.Certificate, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def fingerprints(self) -> frozenset[str]:
        """The SHA-256 of what it gives."""
        return frozenset(each.fingerprint for each in self.certificates)

    def leaving_out(self, fingerprints: Iterable[str], why: str, reason: str = UNREADABLE) -> Content:
        """The same without these, which cannot be used."""
        gone = tuple(fingerprints)
        kept = tuple(each for each in self.certificates if each.fingerprint not in gone)
        problems = (Problem(reason, f"the certificate with SHA-256 {one} is left out: {why}") for one in gone)
        return replace(self, certificates=kept, problems=(*self.problems, *problems))


def key(source: tuple[str, str]) -> str:
    """A source as records and messages name it."""
    return "/".join(source)


def read(document: Mapping[str, Any]) -> Content:
    """What the ConfigMap of a source gives."""
    # 1. not while it is being deleted
    if objects.metadata(document).get("deletionTimestamp") is not None:
        return Content()
    # 3. no private key, under whichever name
    if private_keys(document):
        return Content(problems=(Problem(PRIVATE_KEY, _KEY_SAID),))
    text = str(jsonpath.mapping(document, "data").get(KEY) or "")
    # 2. nothing in it
    return _content(text) if text.strip() else Content()


def read_bootstrap(document: Mapping[str, Any], now: datetime.datetime) -> Content:
    """What a bootstrap ConfigMap gives at this instant."""
    # 7. nothing after its end
    try:
        credential_end.require_readable(document)
    except errors.Refused as refused:
        return Content(problems=(Problem(UNREADABLE, f"{credential_end.KEY}: {refused.message}"),))
    if credential_end.is_over(credential_end.of(document), now):
        return Content()
    content = read(document)
    # 6. only under the name of that signer
    misnamed = [each.fingerprint for each in content.certificates if not is_signer(each)]
    return content.leaving_out(misnamed, MISNAMED_SAID, MISNAMED)


def is_signer(certificate: certificates.Certificate) -> bool:
    """Whether a CA has the common name of the signer of bootstrap credentials (6)."""
    return certificate.subject.common_name == bootstrapper.SIGNER


def private_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a ConfigMap that have the first line of a private key in PEM."""
    return tuple(
        f"{part}[{name}]"
        for part, text_of in (("data", str), ("binaryData", _decoded))
        for name, value in jsonpath.mapping(document, part).items()
        if _KEY.search(text_of(value))
    )


def _decoded(value: Any) -> str:
    """What a value of `binaryData` holds; nothing where it is no base64, which no API server stores."""
    try:
        return base64.b64decode(str(value)).decode("latin-1")
    except ValueError:
        return ""


def _content(text: str) -> Content:
    ders, problems = _ders(text)
    given: dict[bytes, certificates.Certificate] = {}
    for number, der in enumerate(ders, start=1):
        # 4. each that is one of a CA
        try:
            certificate = certificates.read(der)
            certificates.require_ca(certificate)
        except errors.Refused as refused:
            problems.append(Problem(UNREADABLE, f"certificate {number} is left out: {refused.message}"))
        else:
            # 5. once
            given[der] = certificate
    return Content(tuple(given.values()), tuple(problems))


def _ders(text: str) -> tuple[list[bytes], list[Problem]]:
    """The certificates of a text, and what is wrong with it; each block by itself where it is not good as a whole."""
    try:
        return pem.certificates_from_pem(_bytes(text)), []
    except errors.Refused as refused:
        return list(_whole_blocks(text)), [Problem(UNREADABLE, refused.message)]


def _whole_blocks(text: str) -> Iterator[bytes]:
    starts = [match.start() for match in _BEGIN.finditer(text)][: pem.MAX_BLOCKS]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        try:
            yield from pem.certificates_from_pem(_bytes(text[start:end]))
        except errors.Refused:
            # Said of the text as a whole, by its number there.
            continue


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
