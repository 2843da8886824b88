# SPDX-License-Identifier: Apache-2.0
"""What follows: a sentence for every reason that a check can have."""

from __future__ import annotations

import pathlib
import re

from handfast.rules import diagnoses
from handfast.rules.console import consequences

# These are of one node's steps (`handfast check --node`), or words of Kubernetes that are no reason.
NOT_OF_THE_WHOLE = {"Denied", "Failed", "NoRequest", "NotApproved", "NotSigned", "Revoked", "SigningFailed"}
# Known from further down: the mesh has its own words.
WORDS = re.compile(r'"([A-Z][a-z]+(?:[A-Z][a-zA-Z]*)+)"')


def test_every_reason_of_a_check_has_a_consequence():
    source = pathlib.Path(diagnoses.__file__).parent
    reasons = {word for path in source.glob("*.py") for word in WORDS.findall(path.read_text())}
    assert "RenewalLate" in reasons
    assert reasons - NOT_OF_THE_WHOLE - set(consequences.FOLLOWS) == set()


def test_a_reason_of_others_has_none():
    assert consequences.of("SomethingElse") == ""
    assert consequences.of("RenewalLate").endswith(".")
