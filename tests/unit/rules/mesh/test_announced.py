# SPDX-License-Identifier: Apache-2.0
"""What an agent is told: nonsense is refused by name."""

import pytest

from handfast.rules.mesh import announced, issuer, policy
from tests.unit.wire import greeting

ANCHORS = greeting.Anchor().ca.pem
OPEN = policy.PortRules(port=0, enforced=policy.Rules())


def permit(**client):
    return policy.Permit(policy="shop/db", row=0, **client)


def rules(*permits):
    return policy.Rules(restricted=True, permits=permits)


def require(**facts):
    usual = {"version": 2, "before": 1, "anchors_pem": ANCHORS, "names": [], "certificates": [], "compiled": None}
    return announced.require(**{**usual, **facts})


def test_what_can_be_followed_is_told():
    compiled = policy.Compiled(
        ports=(
            OPEN,
            policy.PortRules(port=80, enforced=rules(permit(identity="a.b"), permit(suffix=".c"), permit(anyone=True))),
        )
    )
    seen = require(names=["a.b"], certificates=[b"\x0a" * 32], compiled=compiled)
    assert (seen.version, seen.denied_names, seen.denied_digests) == (2, {"a.b"}, {"0a" * 32})
    assert seen.compiled is compiled
    assert require().compiled is None
    assert (require().signer, require(signer="00ff").signer) == ("", "00ff")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"version": 1}, "OldVersion"),
        ({"version": 0, "before": 0}, "OldVersion"),
        ({"anchors_pem": b""}, "NoTrustAnchors"),
        ({"anchors_pem": b"nothing"}, "BadTrustAnchor"),
        ({"names": ["a.b,c"]}, "BadDenyList"),
        ({"names": [""]}, "BadDenyList"),
        ({"names": ["A.b"]}, "BadDenyList"),
        ({"certificates": [b"short"]}, "BadDenyList"),
        ({"signer": "x"}, "BadSigner"),
        ({"signer": "0" * 65}, "BadSigner"),
        ({"compiled": policy.Compiled(ports=())}, "BadPolicy"),
        ({"compiled": policy.Compiled(ports=(policy.PortRules(port=80, enforced=policy.Rules()),))}, "BadPolicy"),
        ({"compiled": policy.Compiled(ports=(OPEN, OPEN))}, "BadPolicy"),
        (
            {"compiled": policy.Compiled(ports=(OPEN, policy.PortRules(port=65536, enforced=policy.Rules())))},
            "BadPolicy",
        ),
        ({"compiled": policy.Compiled(ports=(policy.PortRules(port=0, enforced=rules(permit())),))}, "BadPolicy"),
        (
            {
                "compiled": policy.Compiled(
                    ports=(policy.PortRules(port=0, enforced=rules(permit(identity="a", suffix=".b"))),)
                )
            },
            "BadPolicy",
        ),
        (
            {
                "compiled": policy.Compiled(
                    ports=(
                        policy.PortRules(port=0, enforced=policy.Rules(), audited=rules(permit(identity="*.example"))),
                    )
                )
            },
            "BadPolicy",
        ),
    ],
)
def test_nonsense_is_refused_by_name(facts, reason):
    with pytest.raises((announced.Nonsense, issuer.Unfit)) as refused:
        require(**facts)
    assert refused.value.reason == reason


def test_a_list_or_a_policy_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(announced, "MOST_DENIED", 1)
    monkeypatch.setattr(announced, "MOST_ROWS", 0)
    with pytest.raises(announced.Nonsense, match="more than 1 rows"):
        require(names=["a", "b"])
    compiled = policy.Compiled(ports=(policy.PortRules(port=0, enforced=rules(permit(anyone=True))),))
    with pytest.raises(announced.Nonsense, match="more than 0 rows"):
        require(compiled=compiled)
