# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a Secret that was meant to hold a bootstrap token: the reason why it is ignored, for its owner.

A token with a fault signs nothing. Nothing else is granted or refused here. Whoever deletes tokens or lets them in
makes checks of their own (`tokens`, `token_verdict`), and tells nobody. The first of these that does not hold is told.
No sentence quotes the data: more people read Events than Secrets, and what stands under the wrong key may be the
secret.

1. It lies in `kube-system`.
2. It has the type of token Secrets, and data in base64.
3. It has an id, of the form of one.
4. Its name is `bootstrap-token-<id>`.
5. It has a secret half, of the form of one. Kubernetes signs with any other, too; nobody can present it, and a short one
   could be guessed from the signature. Here it signs nothing.
6. Its expiration, if any, can be read: one that cannot counts as past.
7. The two keys of groups do not differ; and the groups, if it is for authentication, are well formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import tokens


class Fault(msgspec.Struct, frozen=True):
    """A stable word, and a sentence."""

    reason: str
    sentence: str


# For whoever sees no more than the name: these are told without a look inside.
WRONG_NAMESPACE: Final = Fault(
    "WrongNamespace", f"bootstrap tokens are only looked for in the namespace {tokens.NAMESPACE}"
)
WRONG_TYPE: Final = Fault("WrongSecretType", f"type: must be {tokens.SECRET_TYPE}")


def is_meant(name: str) -> bool:
    """Does a name alone say that a token was meant, whatever the type?"""
    return _can(lambda: tokens.parse_secret_name(name))


def fault(document: objects.Document) -> Fault | None:
    """What is wrong with a Secret of that type, or that `is_meant` to be."""
    # 1. its namespace
    if objects.metadata(document).get("namespace") != tokens.NAMESPACE:
        return WRONG_NAMESPACE
    # 2. its type and data
    try:
        secret = tokens.read(document)
    except errors.Refused as refused:
        return Fault(refused.reason, refused.message)
    # 3 to 7. what the table has
    return next((Fault(reason, sentence) for holds, reason, sentence in _CHECKS if not holds(secret)), None)


def _can(read: Callable[[], object]) -> bool:
    try:
        read()
    except errors.Refused:
        return False
    return True


def _has_id(secret: tokens.TokenSecret) -> bool:
    return is_meant(tokens.secret_name(secret.token.id))


def _groups_are_good(secret: tokens.TokenSecret) -> bool:
    if tokens.AUTHENTICATION in secret.usages:
        return _can(lambda: tokens.parse_groups(secret.extra_groups, secret.old_groups))
    return None in {secret.extra_groups, secret.old_groups} or secret.extra_groups == secret.old_groups


_GROUPS_SENTENCE: Final = (
    f"{tokens.KEY_GROUPS}: must be groups separated by commas, each of them {tokens.GROUP_FORM}; "
    f"{tokens.KEY_GROUPS_OLD}, its old name, must say the same or be absent"
)
_CHECKS: Final[tuple[tuple[Callable[[tokens.TokenSecret], bool], str, str], ...]] = (
    # 3. an id
    (_has_id, "BadTokenID", f"{tokens.KEY_ID}: must be six lower-case letters or digits"),
    # 4. its name
    (
        lambda secret: secret.name == tokens.secret_name(secret.token.id),
        "WrongSecretName",
        f"the name must be {tokens.NAME_PREFIX}, followed by the {tokens.KEY_ID} in the data",
    ),
    # 5. a secret half
    (
        lambda secret: tokens.is_well_formed(secret.token.text),
        "BadTokenSecret",
        f"{tokens.KEY_SECRET}: must be sixteen lower-case letters or digits",
    ),
    # 6. an expiration that can be read
    (
        lambda secret: _can(lambda: tokens.parse_expiration(secret.expiration)),
        "BadTokenExpiration",
        f"{tokens.KEY_EXPIRATION}: must be an RFC 3339 time such as 2030-01-31T12:00:00Z; any other text has expired",
    ),
    # 7. its groups
    (
        _groups_are_good,
        "BadBootstrapGroup",
        _GROUPS_SENTENCE,
    ),
)
