# SPDX-License-Identifier: Apache-2.0
"""Names in the mesh, drawn: composing and parsing are each other's inverse, and two accounts never share a name."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as some

from handfast import errors
from handfast.rules.mesh import names

# Words of which names are made come often: they are what a name could be misread by.
WORDS = ("sa", "linkerd-identity", "serviceaccount", "identity", "linkerd", "cluster", "local", "a", "0", "a-b")
LABELS = some.one_of(some.sampled_from(WORDS), some.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
DOMAINS = some.lists(LABELS, min_size=1, max_size=3).map(".".join)
ACCOUNTS = some.builds(names.Account, namespace=LABELS, name=LABELS, uid=LABELS)
TEXTS = some.one_of(some.text(max_size=80), some.lists(some.sampled_from([*WORDS, ""]), max_size=9).map(".".join))


def mesh(domain: str, namespace: str, scheme: names.Scheme) -> names.Mesh:
    assume(not domain.rpartition(".")[2].isdigit())
    return names.Mesh(domain, namespace, scheme)


MESHES = some.tuples(DOMAINS, LABELS, some.sampled_from(names.Scheme))


@given(MESHES, ACCOUNTS)
def test_a_name_is_parsed_to_its_account(parts, account):
    one = mesh(*parts)
    try:
        name = one.name(account)
    except names.TooLong:
        assume(False)
    expected = (
        account if one.scheme is names.Scheme.UID else names.Account(namespace=account.namespace, name=account.name)
    )
    assert one.account(name) == expected


@given(MESHES, TEXTS)
def test_whatever_is_read_as_a_name_is_the_one_name_of_its_account(parts, text):
    one = mesh(*parts)
    for candidate in (text, f"{text}.{one.ending}"):
        try:
            account = one.account(candidate)
        except errors.Refused:
            continue
        assert one.name(account) == candidate
