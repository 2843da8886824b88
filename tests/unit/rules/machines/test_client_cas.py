# SPDX-License-Identifier: Apache-2.0
"""The merge of client CAs, and whom a bootstrap CA may vouch for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from handfast import errors
from handfast.pki import certificates, names
from handfast.rules.machines import bootstrapper, client_cas
from tests.unit.pki.making import DAY, NOW, Made, ca

OWN, HAND, FIRST, SECOND = ca("own"), ca("by hand"), ca("first"), ca("second")
EXPIRED = ca("expired", not_before=NOW - 3 * DAY, not_after=NOW - DAY)
ENDING = ca("ending", not_after=NOW)
LATER = ca("later", not_before=NOW + DAY, not_after=NOW + 2 * DAY)
A, B = "openshift-config/a", "openshift-config/b"


def facts(*made: Made) -> list[certificates.Certificate]:
    return [certificates.read(one.der) for one in made]


def print_of(made: Made) -> str:
    return certificates.fingerprint(made.der)


def merge(
    here: Sequence[Made],
    given_by: Mapping[Made, Sequence[str]] | None = None,
    *,
    own: Sequence[Made] = (),
    **sources: Sequence[Made],
) -> client_cas.Merged:
    named = {f"openshift-config/{name}": facts(*made) for name, made in sources.items()}
    record = {print_of(made): tuple(names_) for made, names_ in (given_by or {}).items()}
    return client_cas.merge([one.der for one in here], record, named, NOW, frozenset(map(print_of, own)))


def ders(*made: Made) -> tuple[bytes, ...]:
    return tuple(one.der for one in made)


@dataclasses.dataclass
class Case:
    """A row of the operator's own table, with what a bundle that people write, too, adds to it."""

    name: str
    here: Sequence[Made]
    sources: dict[str, Sequence[Made]]
    wanted: Sequence[Made]
    given_by: dict[Made, Sequence[str]] = dataclasses.field(default_factory=dict)
    recorded: dict[Made, Sequence[str]] = dataclasses.field(default_factory=dict)
    changed: bool = True


# TestManageClientCABundle. Our bundle is never made here and never empty, and has a record where theirs has an annotation; that
# other annotations stay is shown with the ConfigMap, in tests/unit/controllers/machines/test_client_ca_targets.py.
CASES = [
    Case("none exists", [OWN], {}, [OWN], changed=False),
    Case("one source", [OWN], {"a": [FIRST]}, [OWN, FIRST], recorded={FIRST: [A]}),
    Case("missing annotation", [OWN, FIRST], {"a": [FIRST]}, [OWN, FIRST], changed=False),
    Case(
        "new source appears",
        [OWN, FIRST],
        {"a": [FIRST], "b": [SECOND]},
        [OWN, FIRST, SECOND],
        given_by={FIRST: [A]},
        recorded={FIRST: [A], SECOND: [B]},
    ),
    Case(
        "unchanged",
        [OWN, FIRST],
        {"a": [FIRST]},
        [OWN, FIRST],
        given_by={FIRST: [A]},
        recorded={FIRST: [A]},
        changed=False,
    ),
    Case("source goes", [OWN, FIRST], {}, [OWN], given_by={FIRST: [A]}),
    Case("source goes, and left the record only", [OWN], {}, [OWN], given_by={FIRST: [A]}, changed=False),
    Case(
        "one of two sources goes",
        [OWN, FIRST],
        {"b": [FIRST]},
        [OWN, FIRST],
        given_by={FIRST: [A, B]},
        recorded={FIRST: [B]},
        changed=False,
    ),
    Case("duplicates", [OWN], {"a": [FIRST, FIRST], "b": [FIRST]}, [OWN, FIRST], recorded={FIRST: [A, A, B]}),
    Case("expired", [OWN], {"a": [EXPIRED, ENDING]}, [OWN], changed=False),
    Case("expired since", [OWN, EXPIRED], {"a": [EXPIRED]}, [OWN], given_by={EXPIRED: [A]}),
    Case("not yet valid", [OWN], {"a": [LATER]}, [OWN, LATER], recorded={LATER: [A]}),
    Case("by hand stays", [HAND, OWN], {}, [HAND, OWN], changed=False),
    Case("by hand, and a source goes", [OWN, HAND, FIRST], {}, [OWN, HAND], given_by={FIRST: [A]}),
    Case("expired by hand stays", [OWN, EXPIRED], {}, [OWN, EXPIRED], changed=False),
    Case(
        "taken out by hand, and still given",
        [OWN],
        {"a": [FIRST]},
        [OWN, FIRST],
        given_by={FIRST: [A]},
        recorded={FIRST: [A]},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table(case: Case):
    merged = merge(case.here, case.given_by, **case.sources)
    assert merged.ders == ders(*case.wanted)
    recorded = {made: list(dict.fromkeys(sources)) for made, sources in case.recorded.items()}
    assert {one: list(dict.fromkeys(sources)) for one, sources in merged.given_by.items()} == {
        print_of(made): sources for made, sources in recorded.items()
    }
    assert (merged.ders != ders(*case.here)) is case.changed
    assert {each.der for each in merged.added} == set(ders(*case.wanted)) - set(ders(*case.here))
    assert set(merged.removed) == {print_of(made) for made in case.here if made not in case.wanted}
    assert merged.kept == ()


def test_a_source_becomes_the_directorys_own():
    """It was given by a source first; then it is the directory's, and the source may go."""
    merged = merge([OWN, FIRST], {FIRST: [A]}, own=[FIRST, SECOND])
    assert merged.ders == ders(OWN, FIRST)
    assert merged.given_by == {}
    # What is the directory's and not in the bundle is not put there by that.
    assert merge([OWN], own=[OWN, SECOND]).ders == ders(OWN)


def test_the_last_one_in_force_is_kept():
    merged = merge([EXPIRED, FIRST, SECOND], {FIRST: [A], SECOND: [B]})
    assert merged.ders == ders(EXPIRED, FIRST, SECOND)
    assert merged.kept == (print_of(FIRST), print_of(SECOND))
    assert merged.removed == ()
    # It is still known where they came from, so that they go once there is another.
    again = merge([EXPIRED, FIRST, SECOND, HAND], {FIRST: [A], SECOND: [B]})
    assert again.ders == ders(EXPIRED, HAND)


def test_what_comes_in_does_not_replace_what_was_in_force_before_it_is():
    merged = merge([FIRST], {FIRST: [A]}, b=[LATER])
    assert merged.ders == ders(FIRST, LATER)
    assert merged.given_by == {print_of(FIRST): (A,), print_of(LATER): (B,)}
    assert merge([FIRST], {FIRST: [A]}, b=[SECOND]).ders == ders(SECOND)


def test_where_nobody_is_trusted_already_nothing_is_kept():
    assert merge([EXPIRED], {EXPIRED: [A]}).ders == ()


def test_what_cannot_be_read_is_nobody_in_force():
    assert not client_cas.in_force([b"garbage", EXPIRED.der], NOW)
    assert client_cas.in_force([b"garbage", EXPIRED.der, FIRST.der], NOW)


def test_it_is_looked_at_again_when_the_next_one_expires():
    assert client_cas.ends([facts(FIRST), facts(LATER, EXPIRED)], NOW) == NOW + DAY
    assert client_cas.ends([facts(EXPIRED)], NOW) is None


def test_a_key_that_is_trusted_in_full_is_not_limited():
    again = ca("another name", key=FIRST.key)
    assert client_cas.also_unscoped(facts(FIRST, SECOND), [again.der, OWN.der]) == facts(FIRST)


class TestScope:
    @pytest.mark.parametrize(
        "groups",
        [bootstrapper.GROUPS, tuple(reversed(bootstrapper.GROUPS)), bootstrapper.GROUPS[:1], ()],
    )
    def test_the_bootstrap_identity_is_inside(self, groups: tuple[str, ...]):
        client_cas.require_in_scope(names.Subject(common_name=bootstrapper.USER, organizations=groups))

    @pytest.mark.parametrize(
        "subject",
        [
            names.Subject(common_name="kubernetes-admin", organizations=("system:masters",)),
            names.Subject(common_name=bootstrapper.USER, organizations=(*bootstrapper.GROUPS, "system:masters")),
            names.Subject(common_name=bootstrapper.USER, organizations=("system:authenticated",)),
            names.Subject(common_name="system:node:a", organizations=("system:nodes",)),
            names.Subject(common_name=bootstrapper.USER + "-not", organizations=bootstrapper.GROUPS),
            names.Subject(common_name=bootstrapper.USER.upper()),
            names.Subject(organizations=bootstrapper.GROUPS),
        ],
        ids=str,
    )
    def test_everybody_else_is_outside(self, subject: names.Subject):
        with pytest.raises(errors.Refused) as caught:
            client_cas.require_in_scope(subject)
        assert caught.value.reason == "OutsideAuthorityScope"
        assert f"good for {bootstrapper.USER} in [" in caught.value.message
