# SPDX-License-Identifier: Apache-2.0
"""The name of a node's request is the kubelet's; what is done when it is taken is tested with the client."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from handfast.pki import keys, names, request_names

# The key whose private number is 1: its public point is the curve's generator.
KEY = keys.PrivateKey(ec.derive_private_key(1, ec.SECP256R1())).public
NODE = names.Subject(common_name="system:node:node-1", organizations=("system:nodes",))
USAGES = ("digital signature", "client auth")
NAME = "node-csr-_v0uUYH0FxEZl7ih8xa2llEqEdqKgeMs3eas458m8EE"


def test_the_name_is_the_one_that_a_kubelet_computes():
    assert request_names.csr_name(KEY, NODE, USAGES) == NAME


@pytest.mark.parametrize(
    ("key", "subject", "usages"),
    [
        pytest.param(keys.generate().public, NODE, USAGES, id="another key"),
        pytest.param(KEY, names.Subject(common_name="system:node:node-1"), USAGES, id="no organization"),
        pytest.param(
            KEY,
            names.Subject(common_name="system:node:node-1s", organizations=("ystem:nodes",)),
            USAGES,
            id="a letter moved from one part to the next",
        ),
        pytest.param(KEY, NODE, (*USAGES, "key encipherment"), id="one more usage"),
        pytest.param(KEY, NODE, USAGES[::-1], id="another order of usages"),
    ],
)
def test_everything_counts(key: keys.PublicKey, subject: names.Subject, usages: tuple[str, ...]):
    assert request_names.csr_name(key, subject, usages) != NAME
