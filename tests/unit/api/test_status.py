# SPDX-License-Identifier: Apache-2.0
"""Every refusal as a Status in Kubernetes' words, and the one mapping from errors to it."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import status


class TestDocument:
    def test_a_status_without_details_has_none(self) -> None:
        assert status.bad_request("no").document() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "no",
            "reason": "BadRequest",
            "code": 400,
        }

    @pytest.mark.parametrize(
        "error",
        [status.no_such_path(), status.method_not_allowed(), status.StatusError("NotAcceptable", "no")],
        ids=lambda error: error.reason,
    )
    def test_clients_that_look_into_details_find_them(self, error: status.StatusError) -> None:
        assert error.document()["details"] == {}

    def test_a_status_shows_everything_the_error_says(self) -> None:
        cause = status.Cause("FieldValueInvalid", "Invalid value: 3", "spec.replicas")
        error = status.StatusError(
            "Expired",
            "old",
            name="a",
            group="apps",
            kind="deployments",
            causes=[cause, status.Cause("Other", "somewhere")],
            retry_after=3,
            continue_token="abc",
        )
        document = error.document()
        assert document["metadata"] == {"continue": "abc"}
        assert document["details"] == {
            "name": "a",
            "group": "apps",
            "kind": "deployments",
            "causes": [
                {"reason": "FieldValueInvalid", "message": "Invalid value: 3", "field": "spec.replicas"},
                {"reason": "Other", "message": "somewhere"},
            ],
            "retryAfterSeconds": 3,
        }
        assert document["code"] == 410

    @pytest.mark.parametrize(("reason", "code"), status.CODES.items())
    def test_each_reason_has_its_code(self, reason: str, code: int) -> None:
        assert status.StatusError(reason, "").document()["code"] == code

    def test_the_code_may_be_more_exact(self) -> None:
        assert status.StatusError("BadRequest", "", code=431).code == 431

    def test_unknown_reason_is_a_bug(self) -> None:
        with pytest.raises(KeyError):
            status.StatusError("Nonsense", "")


class TestConstructors:
    @pytest.mark.parametrize(
        ("error", "code", "message", "details"),
        [
            (
                status.not_found("secrets", "", "a"),
                404,
                'secrets "a" not found',
                {"name": "a", "kind": "secrets"},
            ),
            (
                status.not_found("deployments", "apps", "a"),
                404,
                'deployments.apps "a" not found',
                {"name": "a", "group": "apps", "kind": "deployments"},
            ),
            (
                status.already_exists("secrets", "", "a"),
                409,
                'secrets "a" already exists',
                {"name": "a", "kind": "secrets"},
            ),
            (
                status.conflict("secrets", "", "a"),
                409,
                (
                    'Operation cannot be fulfilled on secrets "a": the object has been modified; please apply your changes '
                    "to the latest version and try again"
                ),
                {"name": "a", "kind": "secrets"},
            ),
            (
                status.conflict("secrets", "", "a", "no"),
                409,
                'Operation cannot be fulfilled on secrets "a": no',
                {"name": "a", "kind": "secrets"},
            ),
            (
                status.forbidden("secrets", "", "a", "no"),
                403,
                'secrets "a" is forbidden: no',
                {"name": "a", "kind": "secrets"},
            ),
            (status.forbidden("secrets", "", "", "no"), 403, "secrets is forbidden: no", {"kind": "secrets"}),
        ],
    )
    def test_words_of_kubernetes(
        self, error: status.StatusError, code: int, message: str, details: dict[str, str]
    ) -> None:
        assert (error.code, error.message) == (code, message)
        assert error.document()["details"] == details

    def test_invalid_with_one_cause(self) -> None:
        error = status.invalid("Secret", "", "a", [status.Cause("R", "Required value", "type")])
        assert error.message == 'Secret "a" is invalid: type: Required value'
        assert error.code == 422

    def test_invalid_with_more(self) -> None:
        causes = [status.Cause("R", "Required value", "type"), status.Cause("R", "all of it")]
        error = status.invalid("Deployment", "apps", "a", causes)
        assert error.message == 'Deployment.apps "a" is invalid: [type: Required value, all of it]'

    def test_an_expired_list_carries_its_continue_token(self) -> None:
        assert status.expired("old").document()["metadata"] == {}
        assert status.expired("old", "abc").document()["metadata"] == {"continue": "abc"}

    def test_too_large_resource_version(self) -> None:
        error = status.too_large_resource_version(9, 3)
        assert (error.code, error.retry_after) == (504, 1)
        assert error.message == "Too large resource version: 9, current: 3"
        assert error.causes[0].reason == "ResourceVersionTooLarge"


class TestFromError:
    def test_a_status_stays(self) -> None:
        error = status.bad_request("no")
        assert status.from_error(error) is error

    def test_what_is_unavailable_is_a_503_to_try_again(self) -> None:
        found = status.from_error(errors.Unavailable("the disk is full"))
        assert (found.code, found.message, found.retry_after) == (503, "the disk is full", 1)

    def test_a_refusal_is_a_400_with_its_message(self) -> None:
        found = status.from_error(errors.Refused("bad key"))
        assert (found.code, found.message) == (400, "bad key")

    @pytest.mark.parametrize("error", [errors.Misuse("secret detail"), ValueError("secret detail"), KeyError("secret")])
    def test_anything_else_gives_nothing_away(self, error: Exception) -> None:
        found = status.from_error(error)
        assert found.code == 500
        assert "secret" not in str(found.document())


def test_no_such_path() -> None:
    refused = status.no_such_path()
    assert (refused.code, refused.message) == (404, "the server could not find the requested resource")


class TestLength:
    """A refusal does not outgrow the request, whatever it quotes."""

    def test_causes_are_cut_in_number_and_length(self) -> None:
        causes = [status.Cause("FieldValueInvalid", "m" * 5000, "f" * 5000)] * 300
        error = status.invalid("Pod", "", "n" * 5000, causes)
        details = error.document()["details"]
        assert len(details["causes"]) == status.MAX_CAUSES
        assert details["causes"][0] == {
            "reason": "FieldValueInvalid",
            "message": "m" * 2048 + "…",
            "field": "f" * 2048 + "…",
        }
        assert details["name"] == "n" * 2048 + "…"

    def test_what_is_left_out_is_said(self) -> None:
        causes = [status.Cause("FieldValueInvalid", "m")]
        assert "and more" not in status.invalid("Pod", "", "n", causes * 100).message
        error = status.invalid("Pod", "", "n", causes * 101)
        assert error.message.endswith("m, and more: only the first 100 are shown]")
        assert len(error.causes) == 100

    def test_a_message_is_cut_at_its_limit(self) -> None:
        assert status.bad_request("m" * (32 << 10)).document()["message"] == "m" * (32 << 10)
        assert status.bad_request("m" * 300_000).document()["message"] == "m" * (32 << 10) + "…"
