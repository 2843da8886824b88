# SPDX-License-Identifier: Apache-2.0
"""What a machine joins by: everything that can be wrong with it is one reason, and no secret is told."""

import pytest

from handfast.bootstrap import jws, tokens
from handfast.rules import check
from handfast.rules.diagnoses import joining
from tests.unit.rules.diagnoses import known

FORBIDDEN = check.Unread("no")
OTHER = tokens.Token("ghijkl", "0123456789abcdef")
BROKEN = {"metadata": {"name": "bootstrap-token-broken"}, "type": tokens.SECRET_TYPE, "data": {}}


def verdict(judge, **changes):
    row = judge(known.good(**changes))
    assert known.TOKEN.secret not in f"{row}"
    return row.verdict.value, row.reason


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"own_ca": None}, ("ok", "")),
        ({"cluster_info": None}, ("failed", "NoClusterInfo")),
        ({"cluster_info": {"data": {"kubeconfig": "["}}}, ("failed", "BadKubeconfig")),
        ({"cluster_info": known.info(known.OTHER_CA)}, ("failed", "UnknownAuthority")),
        ({"own_ca": b"broken"}, ("failed", "UnknownAuthority")),
        ({"stranger": 403}, ("warning", "AnonymousRefused")),
        ({"stranger": FORBIDDEN}, ("unknown", "Unknown")),
        ({"cluster_info": FORBIDDEN}, ("unknown", "Unknown")),
        ({"cluster_info": check.Unread("slow", check.TIMEOUT)}, ("failed", "Timeout")),
    ],
)
def test_cluster_info_is_there_for_strangers_and_names_the_known_ca(changes, wanted):
    assert verdict(joining.cluster_info, **changes) == wanted


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"tokens": [], "cluster_info": known.info(signatures={})}, ("ok", "")),
        ({"cluster_info": known.info(signatures={})}, ("failed", "SignatureMissing")),
        ({"cluster_info": None}, ("failed", "SignatureMissing")),
        ({"cluster_info": known.info(signatures={"abcdef": "broken"})}, ("failed", "SignatureMismatch")),
        (
            {"cluster_info": known.info(signatures={"abcdef": jws.sign(b"another", "abcdef", known.TOKEN.secret)})},
            ("failed", "SignatureMismatch"),
        ),
        ({"tokens": []}, ("warning", "SignatureLeftOver")),
        ({"tokens": [known.token(usages=("authentication",))], "cluster_info": known.info(signatures={})}, ("ok", "")),
        ({"tokens": [known.token(hours=-1)], "cluster_info": known.info(signatures={})}, ("ok", "")),
        ({"tokens": [known.token(), BROKEN]}, ("ok", "")),
        ({"tokens": FORBIDDEN}, ("unknown", "Unknown")),
        ({"cluster_info": FORBIDDEN}, ("unknown", "Unknown")),
    ],
)
def test_every_token_that_signs_has_a_good_signature(changes, wanted):
    assert verdict(joining.signatures, **changes) == wanted


@pytest.mark.parametrize(
    ("listed", "wanted", "said"),
    [
        ([known.token()], ("ok", ""), "1 good, the first ends in 1d"),
        (
            [known.token(), known.token(OTHER, hours=None)],
            ("ok", ""),
            "2 good, the first ends in 1d, 1 without an end",
        ),
        ([known.token(hours=None)], ("ok", ""), "1 good, 1 without an end"),
        ([], ("ok", ""), "there is none: no machine can join by a token now"),
        ([BROKEN], ("warning", "TokenUnreadable"), "bootstrap-token-broken"),
        ([known.token(hours=-1)], ("warning", "TokenExpired"), "over, and not deleted: abcdef"),
        ([known.token(hours=-0.01)], ("ok", ""), "there is none"),
        (FORBIDDEN, ("unknown", "Unknown"), "no"),
    ],
)
def test_tokens_are_counted_and_odd_ones_named(listed, wanted, said):
    assert verdict(joining.token_list, tokens=listed) == wanted
    assert said in joining.token_list(known.good(tokens=listed)).sentence
