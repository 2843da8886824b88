# SPDX-License-Identifier: Apache-2.0
"""How `handfast join` says that flags do not go together; what must hold is tested with `bootstrap.discovery`."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.bootstrap import discovery
from handfast.cli import join_flags, join_plan, output
from tests.unit.cli.test_join import PIN
from tests.world.tls_cluster import OTHER, TOKEN

NOTHING = join_flags.Flags(
    endpoints=(),
    token=None,
    discovery_token=None,
    tls_bootstrap_token=None,
    pins=(),
    unsafe_skip_ca_verification=False,
    discovery_file=None,
    discovery_ca_file=None,
    bootstrap_kubeconfig="no/such/file",
    node_plan=None,
    seconds=1.0,
    dry_run=False,
    print_kubeconfig=False,
    form="text",
)
BY_TOKEN = dataclasses.replace(NOTHING, endpoints=("a",), token=TOKEN.text, pins=(PIN,))
BY_FILE = dataclasses.replace(NOTHING, discovery_file="f", tls_bootstrap_token=TOKEN.text)


def test_every_fault_has_its_words():
    assert join_plan._WORDS.keys() == set(discovery.Fault)


@pytest.mark.parametrize(
    ("flags", "changes", "reason", "message", "hint"),
    [
        (NOTHING, {}, "NoDiscoveryMethod", "no discovery method was given", "--discovery-file"),
        (BY_TOKEN, {"discovery_file": "f"}, "TwoDiscoveryMethods", "--token and --discovery-file", "--tls-bootstrap-"),
        (
            BY_TOKEN,
            {"discovery_file": "f", "discovery_token": OTHER.text},
            "TwoDiscoveryMethods",
            "--discovery-token and --discovery-file cannot both be set",
            "leave one",
        ),
        (BY_TOKEN, {"endpoints": ()}, "NoEndpoint", "needs the address", "handfast join"),
        (BY_TOKEN, {"pins": ()}, "NoPin", "is not safe", "--discovery-token-ca-cert-hash"),
        (BY_TOKEN, {"discovery_ca_file": "c"}, "UnusedFlag", "--discovery-ca-file is for", "leave it out"),
        (BY_FILE, {"discovery_ca_file": "c"}, "UnusedFlag", "--discovery-ca-file is for", "leave it out"),
        (BY_FILE, {"pins": (PIN,)}, "UnusedFlag", "--discovery-token-ca-cert-hash is for", "leave it out"),
        (
            BY_FILE,
            {"unsafe_skip_ca_verification": True},
            "UnusedFlag",
            "--discovery-token-unsafe-skip-ca-verification is for discovery with a token, not for --discovery-file",
            "leave it out",
        ),
        (BY_FILE, {"tls_bootstrap_token": None}, "NoBootstrapToken", "no token was given", "--tls-bootstrap-token"),
        (BY_FILE, {"discovery_file": ""}, "Usage", "--discovery-file is empty", "stdin"),
        (BY_FILE, {"discovery_file": "ftp://u/{f}"}, "Usage", "--discovery-file: 'ftp://u/{f}': if a URL", "https"),
        (BY_FILE, {"discovery_file": "https://a:b@u/f"}, "Usage", "without credentials in it", "https"),
        (BY_TOKEN, {"token": "abcdef.0123456789abcde"}, "BadBootstrapToken", "", "six letters"),
        (BY_TOKEN, {"pins": ("foo",)}, "BadPin", "", "64 hex"),
        (BY_TOKEN, {"endpoints": ("http://b",)}, "BadEndpoint", "", "https"),
    ],
)
def test_what_does_not_go_together_is_told_with_the_flags_and_a_next_step(flags, changes, reason, message, hint):
    with pytest.raises(output.Usage) as caught:
        join_plan.choose(dataclasses.replace(flags, **changes))
    assert caught.value.reason == reason
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert TOKEN.secret[:15] not in caught.value.message


def test_the_plan_is_what_the_flags_say():
    plan = join_plan.choose(dataclasses.replace(BY_FILE, discovery_file="https://u/f", discovery_ca_file="c"))
    assert (plan.method, plan.tls_token) == (discovery.ByDocument("https://u/f", "c"), TOKEN)


def test_no_repr_of_flags_shows_a_token():
    shown = repr(dataclasses.replace(BY_TOKEN, discovery_token=OTHER.text, tls_bootstrap_token=OTHER.text))
    assert TOKEN.secret not in shown
    assert OTHER.secret not in shown
