# SPDX-License-Identifier: Apache-2.0
"""Why a token works or does not: one row for each thing that can be wrong, and no secret in any of them."""

import datetime

import pytest

from handfast.bootstrap import first_objects, token_explanation, tokens
from tests.unit.bootstrap.test_tokens import encoded

NOW = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
SECRET = "0123456789abcdef"
TOKEN = tokens.parse(f"abcdef.{SECRET}")
ALL = [
    *("exists", "type", "name", "secret", "expiry", "signing", "authentication", "groups", "uses", "restrictions"),
    "rights",
]


def document(annotations=None, metadata=None, type_=None, **data):
    made = first_objects.first_token(TOKEN, NOW + datetime.timedelta(hours=2))
    for key, value in data.items():
        name = key.replace("_", "-")
        made["data"].pop(name, None)
        if value is not None:
            made["data"][name] = value
    if type_ is not None:
        made["type"] = type_
    made["metadata"] |= (metadata or {}) | ({"annotations": annotations} if annotations else {})
    return made


def explain(made, **more):
    return token_explanation.explain("abcdef", made, NOW, **{"ahead": datetime.timedelta(), **more})


def test_a_good_token():
    found = explain(document())
    assert [row.check for row in found.findings] == ALL
    assert [row.good for row in found.findings] == [True] * len(ALL)
    assert (found.discovery, found.authentication) == (True, True)
    assert [row.sentence for row in found.findings] == [
        "Secret kube-system/bootstrap-token-abcdef",
        "bootstrap.kubernetes.io/token",
        'token-id is "abcdef", as in the name',
        "token-secret has the form of one",
        "expires in 2h, at 2026-11-15T14:00:00Z; the server's clock and this machine's agree",
        'usage-bootstrap-signing is "true": for verifying the cluster',
        'usage-bootstrap-authentication is "true": for logging in',
        "system:bootstrappers, system:bootstrappers:kubeadm:default-node-token",
        "used 0 times; not limited",
        "for any node, from anywhere",
        token_explanation._MAY_JOIN,
    ]
    assert "get Nodes and the ConfigMaps kubeadm-config and kubelet-config" in found.findings[-1].sentence
    assert found.joining is True


def test_without_a_secret_there_is_one_finding():
    found = explain(None)
    assert [(row.check, row.good) for row in found.findings] == [("exists", False)]
    assert found.findings[0].sentence == "there is no Secret kube-system/bootstrap-token-abcdef"
    assert (found.discovery, found.authentication) == (False, False)


# What is wrong, which check says so with which words, and what the token is then good for.
ROWS = {
    "deleting": (document(metadata={"deletionTimestamp": "x"}), "exists", "is being deleted", False, False),
    "type": (document(type_="Opaque"), "type", "must be bootstrap.kubernetes.io/token", False, False),
    "base64": (document(token_id="?"), "type", "must be base64", False, False),
    "name": (document(token_id=encoded("zzzzzz")), "name", 'Expected: "bootstrap-token-zzzzzz"', False, False),
    "secret": (document(token_secret=encoded("short")), "secret", "does not have the form", False, False),
    "expired": (
        document(expiration=encoded("2026-11-15T11:30:00Z")),
        "expiry",
        "expired 30m ago, at 2026-11-15T11:30:00Z",
        False,
        False,
    ),
    "garbage": (document(expiration=encoded("soon")), "expiry", "counts as expired", False, False),
    "not for signing": (document(usage_bootstrap_signing=None), "signing", "not for verifying", False, True),
    "not for login": (
        document(usage_bootstrap_authentication=encoded("True")),
        "authentication",
        "not for logging in",
        True,
        False,
    ),
    "groups": (document(auth_extra_groups=encoded("system:masters")), "groups", "is invalid", True, False),
    "used up": (
        document({"handfast.dev/max-uses": "1", "handfast.dev/use-count": "1"}),
        "uses",
        "used 1 times; 0 left for keys that did not use it yet",
        True,
        True,
    ),
    "bad count": (document({"handfast.dev/max-uses": "x"}), "uses", "no number of uses", True, False),
    "bad nodes": (document({"handfast.dev/allowed-nodes": "A_"}), "restrictions", "neither", True, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_wrong(name):
    made, check, words, discovery, authentication = ROWS[name]
    found = explain(made)
    assert [row.check for row in found.findings] == ALL, "no check is skipped"
    row = next(row for row in found.findings if row.check == check)
    assert row.good is False
    assert words in row.sentence
    assert (found.discovery, found.authentication) == (discovery, authentication)
    # Of all these only what is not for signing lets a new machine in: it verifies the cluster by another.
    assert found.joining is (name == "not for signing")


def test_what_depends_on_who_comes():
    found = explain(
        document(
            {"handfast.dev/allowed-nodes": "w-*", "handfast.dev/allowed-cidrs": "10.0.0.0/8"}, auth_extra_groups=None
        )
    )
    rows = {row.check: row for row in found.findings}
    assert found.joining is None
    assert rows["rights"].sentence == "those that bindings of your own give to its groups"
    assert rows["restrictions"] == token_explanation.Finding("restrictions", None, "for w-*, from 10.0.0.0/8")
    assert rows["groups"].good is None
    assert rows["groups"].sentence.startswith("system:bootstrappers; only bindings of your own")
    assert found.authentication


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ({"handfast.dev/allowed-nodes": "a"}, "for a, from anywhere"),
        ({"handfast.dev/allowed-cidrs": "10.0.0.0/8"}, "for any node, from 10.0.0.0/8"),
    ],
)
def test_one_restriction(limit, sentence):
    assert explain(document(limit)).findings[-2].sentence == sentence


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (None, "never expires; the server's time is not known"),
        (datetime.timedelta(seconds=-2), "never expires; the server's clock and this machine's agree"),
        (datetime.timedelta(seconds=90), "never expires; the server's clock is 90 s ahead of this machine's"),
        (datetime.timedelta(hours=-1), "never expires; the server's clock is 3600 s behind this machine's"),
    ],
)
def test_the_expiry_is_told_with_the_difference_of_clocks(ahead, words):
    found = explain(document(expiration=None), ahead=ahead)
    row = next(row for row in found.findings if row.check == "expiry")
    assert (row.good, row.sentence) == (True, words)
    assert (found.discovery, found.authentication) == (True, True)


def test_the_name_of_what_cannot_be_read_is_still_told():
    found = explain(document(type_="Opaque"))
    row = next(row for row in found.findings if row.check == "name")
    assert "bootstrap-token-abcdef" in row.sentence


@pytest.mark.parametrize(("presented", "good"), [(SECRET, True), ("f" * 16, False)])
def test_a_whole_token_is_compared(presented, good):
    found = explain(document(), presented=tokens.Token("abcdef", presented))
    row = next(row for row in found.findings if row.check == "secret")
    assert (row.good, row.sentence) == (good, f"token-secret {'is' if good else 'is not'} the one given")
    assert (found.discovery, found.authentication) == (good, good)


def test_no_sentence_shows_a_secret():
    for made, *_ in ROWS.values():
        found = explain(made, presented=TOKEN)
        assert SECRET not in repr(found)
        assert "short" not in repr(found)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (document(usage_bootstrap_authentication=None), "none but to verify ConfigMap kube-public/cluster-info"),
        (document(auth_extra_groups=encoded("system:masters")), "none: it is not accepted"),
    ],
)
def test_what_its_bearer_may_not(made, says):
    assert says in explain(made).findings[-1].sentence
