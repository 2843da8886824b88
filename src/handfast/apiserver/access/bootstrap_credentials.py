# SPDX-License-Identifier: Apache-2.0
"""Whether somebody who is refused wanted to join, by what they showed. For the operator alone: it refuses nobody, and no answer changes.

1. A user that a bootstrap token stands for, or the account node-bootstrapper by its certificate or by one of its tokens, holds a credential that counts or did:
   authentication has verified it.
2. A certificate that was refused is somebody's who wants to join if it names that account. Nothing else of it is used. It proves nothing: anybody can make
   one.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_bootstrap_credentials.py |
|---|---|---|---|---|
| a stranger | a certificate of their own in the name of the account | be counted as a holder of it | 2 | test_a_certificate_that_was_refused_proves_nothing |
| a stranger | a certificate that cannot be read | crash the server | 2 | test_what_names_somebody_else_is_no_join |
| an administrator | the right to act as others | have that counted as a join | 1: by how they were known | test_a_user_holds_what_they_were_known_by |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast import errors
from handfast.apiserver import identity
from handfast.apiserver.access import bootstrap_tokens, service_account_tokens
from handfast.pki import certificates, names
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import failed_joins

# How the account was known -> the word for what it holds.
_METHODS: Final[Mapping[str, str]] = {
    "x509": failed_joins.CERTIFICATE,
    service_account_tokens.METHOD: failed_joins.ACCOUNT,
    service_account_tokens.LEGACY_METHOD: failed_joins.ACCOUNT,
}


def bearer(user: identity.User) -> identity.Bearer | None:
    """The holder of a good credential for joining, who is refused for another reason; None: they showed something else (1)."""
    word = _METHODS.get(user.method) if user.name == bootstrapper.USER else None
    return bootstrap_tokens.bearer(user) if word is None else identity.Bearer(word)


def of_chain(chain: Sequence[bytes]) -> identity.Bearer | None:
    """Who showed a certificate that is refused; None: it is not one for joining."""
    try:
        subject = names.subject_of(certificates.load(chain[0]))
    except errors.Refused:
        return None
    # 2. by the name alone, which proves nothing
    if subject.common_name != bootstrapper.USER:
        return None
    return identity.Bearer(failed_joins.CERTIFICATE, known=False, holds_secret=False)
