# SPDX-License-Identifier: Apache-2.0
"""What follows: a sentence for every reason that a check can have."""

from __future__ import annotations

import pathlib
import re

from handfast.rules import diagnoses
from handfast.rules.console import consequences
from handfast.rules.mesh import check_trust, check_workloads

# These are of one node's steps (`handfast check --node`), or words of Kubernetes that are no reason.
NOT_OF_THE_WHOLE = {"Denied", "Failed", "NoRequest", "NotApproved", "NotSigned", "Revoked", "SigningFailed"}
WORDS = re.compile(r'"([A-Z][a-z]+(?:[A-Z][a-zA-Z]*)+)"')


def test_every_reason_of_a_check_has_a_consequence():
    of_mesh = [pathlib.Path(str(module.__file__)) for module in (check_trust, check_workloads)]
    files = [*pathlib.Path(diagnoses.__file__).parent.glob("*.py"), *of_mesh]
    reasons = {word for path in files for word in WORDS.findall(path.read_text())}
    assert {"RenewalLate", "IssuerEndsSoon"} <= reasons
    assert reasons - NOT_OF_THE_WHOLE - set(consequences.FOLLOWS) == set()


def test_a_reason_of_others_has_none():
    assert consequences.of("SomethingElse") == ""
    assert consequences.of("RenewalLate").endswith(".")
