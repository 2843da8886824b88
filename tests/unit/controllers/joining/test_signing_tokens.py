# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from handfast.bootstrap import token_secrets, tokens
from handfast.client import partial
from handfast.controllers.joining import signing_tokens

TOKEN = tokens.Token("abcdef", "0123456789abcdef")


def view(
    token: tokens.Token = TOKEN, uid: str = "u1", usages: Any = ("signing",), **metadata: Any
) -> signing_tokens.View:
    document = tokens.secret_document(token, usages=usages, description="words " * 20)
    document["metadata"] |= {"uid": uid, "resourceVersion": "1", **metadata}
    return msgspec.convert(document, signing_tokens.View)


class Followed:
    def __init__(self) -> None:
        self.rung = 0
        self.changes = 0
        self.complaints = signing_tokens.Complaints(self._ring)
        self.tokens = signing_tokens.Tokens(self.complaints, self._change)
        self.others = signing_tokens.Strays(self.complaints, token_secrets.WRONG_TYPE, token_secrets.is_meant)
        self.elsewhere = signing_tokens.Strays(self.complaints, token_secrets.WRONG_NAMESPACE)

    def _ring(self) -> None:
        self.rung += 1

    def _change(self) -> None:
        self.changes += 1

    def ids(self) -> list[str]:
        return [each.token.id for each in self.tokens.signing()]

    def told(self) -> list[tuple[str, str, str]]:
        found = []
        while (told := self.complaints.next()) is not None:
            regarding, fault = told
            found.append((regarding.namespace, regarding.name, fault.reason))
        return found


async def test_those_that_sign_are_kept_and_no_others():
    followed = Followed()
    followed.tokens.begin()
    followed.tokens.put(view())
    followed.tokens.put(view(tokens.Token("000001", "x" * 16), usages=["authentication"]))
    followed.tokens.put(view(tokens.Token("000002", "x" * 16), deletionTimestamp="2030-01-01T00:00:00Z"))
    followed.tokens.put(view(tokens.Token("000003", "x" * 16), name="wrong"))
    followed.tokens.end()
    await followed.tokens.wait_synced()
    assert followed.ids() == ["abcdef"]
    assert len(followed.tokens) == 1
    assert [each.token for each in followed.tokens.signing()] == [TOKEN]
    meta = followed.tokens.meta("abcdef")
    assert meta is not None
    assert meta.uid == "u1"
    assert followed.tokens.meta("000001") is None
    assert followed.told() == [("kube-system", "wrong", "WrongSecretName")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"token-secret": "0123"}, "BadTokenSecret"),
        ({"token-secret": "0123456789ABCDEF"}, "BadTokenSecret"),
        ({"auth-groups": "system:bootstrappers:a", "auth-extra-groups": "system:bootstrappers:b"}, "BadBootstrapGroup"),
    ],
)
def test_a_malformed_secret_never_signs(data: dict[str, str], reason: str):
    followed = Followed()
    good = view()
    packed = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    followed.tokens.put(msgspec.structs.replace(good, data={**(good.data or {}), **packed}))
    assert followed.ids() == []
    assert followed.told() == [("kube-system", "bootstrap-token-abcdef", reason)]
    # As soon as it is mended it does.
    followed.tokens.put(good)
    assert followed.ids() == ["abcdef"]


def test_only_what_matters_to_signatures_is_a_change():
    followed = Followed()
    followed.tokens.put(view())
    assert followed.changes == 1
    followed.tokens.put(view(uid="u2", resourceVersion="2"))
    followed.tokens.put(view(usages=["signing", "authentication"]))
    assert followed.changes == 1
    followed.tokens.put(view(tokens.Token("abcdef", "x" * 16)))
    assert followed.changes == 2
    followed.tokens.put(view(usages=["authentication"]))
    assert followed.changes == 3
    followed.tokens.put(view(usages=["authentication"]))
    followed.tokens.remove(view())
    assert followed.changes == 3
    followed.tokens.put(view())
    assert (followed.changes, followed.ids()) == (4, ["abcdef"])
    followed.tokens.remove(view())
    assert (followed.changes, followed.ids()) == (5, [])


def test_what_a_new_list_does_not_show_is_gone():
    followed = Followed()
    followed.tokens.begin()
    followed.tokens.put(view())
    followed.tokens.put(view(tokens.Token("000001", "x" * 16)))
    followed.tokens.put(view(tokens.Token("000002", "x" * 16), name="wrong"))
    followed.tokens.end()
    assert len(followed.told()) == 1
    followed.tokens.begin()
    # Until the list is complete nothing is missing.
    assert followed.ids() == ["abcdef", "000001"]
    followed.tokens.put(view())
    followed.tokens.end()
    assert followed.ids() == ["abcdef"]
    # It was forgotten, and is told of again.
    followed.tokens.put(view(tokens.Token("000002", "x" * 16), name="wrong"))
    assert len(followed.told()) == 1


def test_a_fault_is_told_once():
    followed = Followed()
    bad = view(name="wrong")
    followed.tokens.put(bad)
    followed.tokens.put(bad)
    assert (followed.rung, followed.told()) == (1, [("kube-system", "wrong", "WrongSecretName")])
    followed.tokens.put(view(name="wrong", resourceVersion="2"))
    assert followed.told() == []
    # Another one of that name, and another fault.
    followed.tokens.put(view(name="wrong", uid="u2"))
    assert len(followed.told()) == 1
    followed.tokens.put(msgspec.structs.replace(bad, data=None))
    assert followed.told() == [("kube-system", "wrong", "NoSecretData")]
    # Repaired before it was told.
    followed.tokens.put(bad)
    followed.tokens.remove(bad)
    assert followed.told() == []


def test_secrets_of_another_type_that_are_named_like_tokens():
    followed = Followed()
    followed.others.begin()
    for name in ("bootstrap-token-abcdef", "something-else"):
        followed.others.put(partial.Partial(partial.Meta(name=name, namespace="kube-system", uid="u")))
    followed.others.end()
    assert followed.told() == [("kube-system", "bootstrap-token-abcdef", "WrongSecretType")]
    followed.others.remove(partial.Partial(partial.Meta(name="bootstrap-token-abcdef", namespace="kube-system")))
    followed.others.put(partial.Partial(partial.Meta(name="bootstrap-token-abcdef", namespace="kube-system", uid="u")))
    assert len(followed.told()) == 1


def test_tokens_in_another_namespace():
    followed = Followed()
    followed.elsewhere.put(partial.Partial(partial.Meta(name="any-name", namespace="default", uid="u")))
    assert followed.told() == [("default", "any-name", "WrongNamespace")]


def test_topics_do_not_hide_one_another():
    followed = Followed()
    meta = partial.Meta(name="n", namespace="kube-system", uid="u")
    fault = token_secrets.Fault("A", "a")
    followed.complaints.note(signing_tokens.ROOM_FAULT, meta, fault)
    followed.complaints.note(signing_tokens.SECRET_FAULT, meta, None)
    assert followed.told() == [("kube-system", "n", "A")]


def test_tokens_that_do_not_sign_cost_nothing():
    followed = Followed()
    for number in range(1000):
        signs = number % 10 == 0
        followed.tokens.put(
            view(tokens.Token(f"{number:06d}", "x" * 16), usages=["signing" if signs else "authentication"])
        )
    assert len(followed.tokens) == 100
    held = [value for value in vars(followed.tokens).values() if isinstance(value, dict)]
    assert sum(map(len, held)) == 200
