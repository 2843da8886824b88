# SPDX-License-Identifier: Apache-2.0
"""A CA of one's own, and pairs of certificate and key from it, of any age."""

from __future__ import annotations

import datetime

from handfast.pki import authority, keys, names, pairs, profiles
from handfast.rules import user_names
from tests.world.clock import START

HOUR = datetime.timedelta(hours=1)
YEAR = datetime.timedelta(days=365)
_KEY = keys.generate()
_BORN = START - 2 * YEAR
CA = authority.self_signed_ca(names.Subject(common_name="ca"), _KEY, _BORN)


def pair(
    node: str = "n1",
    *,
    begins: datetime.datetime = START,
    lasts: datetime.timedelta = YEAR,
    key: keys.PrivateKey | None = None,
    sans: names.Sans | None = None,
) -> pairs.Pair:
    """A node's pair; `begins` and `lasts` are exact."""
    key = key or keys.generate()
    profile = profiles.Profile(
        name="exact", usages=profiles.KUBELET_CLIENT.usages, lifetime=lasts, backdate=datetime.timedelta()
    )
    subject = user_names.node_subject(node)
    issued = CA.issue(key.public, subject, sans or names.Sans(), profile, begins)
    return pairs.join(issued.pem, key)


def fresh(node: str = "n1") -> pairs.Pair:
    """One that is good for days."""
    return pair(node, begins=START - HOUR, lasts=100 * HOUR)


def expired(node: str = "n1") -> pairs.Pair:
    """One that ended an hour ago."""
    return pair(node, begins=START - 2 * HOUR, lasts=HOUR)
