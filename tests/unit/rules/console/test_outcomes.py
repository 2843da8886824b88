# SPDX-License-Identifier: Apache-2.0
"""What is said of an action that was not taken, or whose answer was lost."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import status
from handfast.rules.console import outcomes

RIGHT = outcomes.Right("delete", "secrets", namespace="kube-system")


def said(error: errors.HandfastError, user: str = "alice") -> outcomes.Failure:
    return outcomes.failure(error, "revoke the token abcdef", (RIGHT,), user)


def refused(code: int, reason: str, retry_after: int = 0) -> status.StatusError:
    return status.StatusError(reason, "the server's words", code=code, retry_after=retry_after)


def test_who_may_not_is_told_which_right_would_let_them() -> None:
    found = said(refused(403, "Forbidden"))
    assert found.sentence == "Not done: you may not revoke the token abcdef. The API server says: the server's words."
    assert found.commands == (
        "kubectl create role handfast-console:delete-secrets --namespace=kube-system --verb=delete --resource=secrets",
        "kubectl create rolebinding handfast-console:delete-secrets --namespace=kube-system --role=handfast-console:delete-secrets --user=alice",
    )


def test_a_right_in_the_cluster_is_for_one_name_where_that_is_enough_and_names_are_quoted() -> None:
    right = outcomes.Right("approve", "signers.certificates.k8s.io", "example.com/a signer")
    role, binding = outcomes.grant((right,), "")
    assert role.startswith("kubectl create clusterrole handfast-console:approve-signers-certificates-k8s-io ")
    assert role.endswith("--resource-name='example.com/a signer'")
    assert binding.endswith("--user=NAME")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (refused(404, "NotFound"), "Not done: what you wanted to revoke is not there any more"),
        (refused(409, "Conflict"), "Not done: somebody else is writing"),
        (errors.Unavailable("others keep writing it", reason="Conflict"), "Not done: somebody else is writing"),
        (refused(429, "TooManyRequests", retry_after=7), "Not done: the API server has too much to do. Wait 7 s"),
        (refused(429, "TooManyRequests"), "Wait a while"),
        (refused(422, "Invalid"), "Not done: the server's words (reason Invalid)."),
        (
            errors.Refused("it is denied", reason="AlreadyDenied", hint="make a new one"),
            "(reason AlreadyDenied). Next: make a new one.",
        ),
    ],
)
def test_what_was_refused_was_not_done(error: errors.HandfastError, part: str) -> None:
    found = said(error)
    assert part in found.sentence
    assert found.sentence.startswith("Not done: ")
    assert (found.commands, found.unknown) == ((), False)


@pytest.mark.parametrize(
    "error",
    [refused(500, "InternalError"), refused(503, "ServiceUnavailable"), errors.Unavailable("the connection was lost")],
)
def test_where_no_answer_came_it_may_have_been_done(error: errors.HandfastError) -> None:
    assert said(error).sentence.startswith("It is not known whether it was done: ")
    assert said(error).unknown


@pytest.mark.parametrize("error", [refused(503, "ServiceUnavailable"), errors.Unavailable("the connection was lost")])
def test_where_nothing_was_sent_but_questions_it_was_not_done(error: errors.HandfastError) -> None:
    found = outcomes.failure(error, "create a token", (RIGHT,), "", begun=False)
    assert found.sentence.startswith("Not done: the API server gave no answer: ")
