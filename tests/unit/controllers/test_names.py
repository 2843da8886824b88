# SPDX-License-Identifier: Apache-2.0
"""Which controllers run: the names, and what `--controllers` chooses of them."""

import pytest

from handfast import errors
from handfast.assembly import controllers
from handfast.controllers import names as controller_names
from handfast.controllers.certificates import authorities as signing_authorities
from handfast.pki import jwt, keys
from handfast.runtime import clock

ABLE = ("namespace-controller", "endpoints-controller", "bootstrap-signer-controller", "token-cleaner-controller")
NAMESPACE, ENDPOINTS, SIGNER, CLEANER = ABLE


def test_these_are_all():
    """Who adds a controller adds its name here, or nobody could choose it."""
    authorities = signing_authorities.SigningAuthorities({}, clock.SystemClock())
    builds = controllers.known(b"ca", jwt.Signer(keys.generate()), ["https://a"], authorities=authorities)
    assert tuple(builds) == controller_names.NAMES
    assert set(controller_names.ALIASES.values()) | controller_names.OPT_IN <= set(controller_names.NAMES)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (["*"], [NAMESPACE, ENDPOINTS]),
        (["*", f"-{ENDPOINTS}"], [NAMESPACE]),
        ([ENDPOINTS, NAMESPACE], [NAMESPACE, ENDPOINTS]),
        (["*", "bootstrapsigner"], [NAMESPACE, ENDPOINTS, SIGNER]),
        ([CLEANER, "*", "bootstrapsigner"], [*ABLE]),
        (["tokencleaner"], [CLEANER]),
        (["*", SIGNER, CLEANER, "-tokencleaner"], [NAMESPACE, ENDPOINTS, SIGNER]),
        (["*", "bootstrapsigner", f"-{SIGNER}"], [NAMESPACE, ENDPOINTS]),
    ],
)
def test_a_selection_takes_in_and_out_by_name(selection, chosen):
    assert controller_names.chosen(selection, ABLE) == chosen


@pytest.mark.parametrize(
    "selection", [[NAMESPACE, f"-{NAMESPACE}"], [f"-{NAMESPACE}"], [], ["*", f"-{NAMESPACE}", f"-{ENDPOINTS}"]]
)
def test_nothing_is_left(selection):
    with pytest.raises(errors.Refused, match="no controller is left") as caught:
        controller_names.chosen(selection, ABLE)
    assert caught.value.reason == "NoController"


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(
        errors.Refused, match=r"no controller 'd', '-e'; there are: namespace-controller, .* \(nodelifecycle\), "
    ) as caught:
        controller_names.chosen(["*", "d", "-e"], ABLE)
    assert caught.value.reason == "UnknownController"


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("clusterinfo", "--advertise, and a CA"),
        ("csrsigning", "--cluster-signing-cert-file and"),
        ("issuance-log-cleaner-controller", "--cluster-signing-cert-file and"),
        ("serviceaccount-token-controller", "pki/sa.key"),
    ],
)
def test_a_controller_that_cannot_run_here_is_refused_with_what_it_needs(name, needs):
    """There is one of that name; here it cannot run. That it should not is no mistake."""
    with pytest.raises(errors.Refused, match=f"the controller '{name}' cannot run here: it needs .*{needs}") as caught:
        controller_names.chosen(["*", name], ABLE)
    assert caught.value.reason == "ControllerUnable"
    for selection in (["*", f"-{name}"], ["*", name, f"-{name}"]):
        assert controller_names.chosen(selection, ABLE) == [NAMESPACE, ENDPOINTS]


def test_whoever_may_be_unable_has_its_need_named():
    assert set(controllers.known(b"")) | set(controller_names.NEEDS) == set(controller_names.NAMES)
