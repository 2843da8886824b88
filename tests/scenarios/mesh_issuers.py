# SPDX-License-Identifier: Apache-2.0
"""A root of an operator's own, with issuers below it for `mesh install`: so that a test can swap the issuer, and sign what no identity service would."""

from __future__ import annotations

import datetime
import pathlib

from handfast.pki import authority, keys, names, pairs, profiles
from tests.unit.wire import greeting

_HOUR = datetime.timedelta(hours=1)
_DAY = datetime.timedelta(days=1)


def _ago(time: datetime.timedelta) -> datetime.datetime:
    return greeting.CLOCK.now() - time


class Issuer:
    """A CA of the mesh, in files as `mesh install` takes them."""

    def __init__(self, directory: pathlib.Path, root: authority.Authority, name: str) -> None:
        key = keys.generate()
        subject = names.Subject(common_name=f"issuer {name}")
        issued = root.issue(key.public, subject, names.Sans(), profiles.INTERMEDIATE_CA, _ago(_DAY))
        self._authority = authority.Authority(issued.der, key)
        self.der = issued.der
        anchors, certificate, private = (directory / f"{name}.{each}" for each in ("root", "crt", "key"))
        anchors.write_bytes(root.pem)
        certificate.write_bytes(issued.pem)
        private.write_bytes(key.to_pem())
        private.chmod(0o600)
        self.words = ("--trust-anchors", anchors, "--issuer-cert", certificate, "--issuer-key", private)

    def pair(self, name: str, left: datetime.timedelta = _HOUR) -> pairs.Pair:
        """A certificate for any name, of an hour that has so much left; less than none: it is over."""
        key, sans = keys.generate(), names.Sans(dns=(name,))
        issued = self._authority.issue(key.public, names.Subject(), sans, greeting.BOTH, _ago(_HOUR - left), ttl=_HOUR)
        return pairs.Pair((issued.der, self.der), key)


class Root:
    """The root, which has begun a week ago."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._anchor = greeting.Anchor(ago=7 * _DAY)

    def issuer(self, name: str) -> Issuer:
        return Issuer(self._directory, self._anchor.ca, name)
