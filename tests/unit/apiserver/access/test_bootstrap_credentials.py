# SPDX-License-Identifier: Apache-2.0
"""Who wanted to join, by what they showed. The names of the table in `apiserver/access/bootstrap_credentials.py` are here."""

from __future__ import annotations

import pytest

from handfast.apiserver import identity
from handfast.apiserver.access import bootstrap_credentials
from handfast.pki import names
from handfast.rules.machines import bootstrapper
from tests.unit.pki import making

STRANGER = making.ca("stranger \x1b[31m<b>")


@pytest.mark.parametrize(
    ("name", "method", "word"),
    [
        ("system:bootstrap:abcdef", "bootstrap-token", "abcdef"),
        (bootstrapper.USER, "x509", "certificate"),
        (bootstrapper.USER, "service-account-secret", "account"),
        (bootstrapper.USER, "service-account-token", "account"),
        (bootstrapper.USER, "x509 impersonation", None),
        (bootstrapper.USER, "", None),
        ("system:node:n1", "x509", None),
        ("system:bootstrap:abcdef", "x509", None),
    ],
)
def test_a_user_holds_what_they_were_known_by(name: str, method: str, word: str | None) -> None:
    bearer = bootstrap_credentials.bearer(identity.User(name, (), method=method))
    assert bearer == (None if word is None else identity.Bearer(word))


def test_a_certificate_that_was_refused_proves_nothing() -> None:
    own = making.leaf(STRANGER, subject=names.to_name(names.Subject(common_name=bootstrapper.USER)))
    bearer = bootstrap_credentials.of_chain([own.der])
    assert bearer == identity.Bearer("certificate", known=False, holds_secret=False)


@pytest.mark.parametrize("der", [making.leaf(STRANGER, subject="system:node:n1").der, STRANGER.der, b"", b"\x30\x00"])
def test_what_names_somebody_else_is_no_join(der: bytes) -> None:
    assert bootstrap_credentials.of_chain([der]) is None
