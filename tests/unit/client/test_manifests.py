# SPDX-License-Identifier: Apache-2.0
"""A manifest from an https URL: what is taken, and what is said of the rest."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.bootstrap import diagnosis
from handfast.client import anonymous, manifests

URL = "https://example.com/web.yaml?key=secret"


async def fetched(answer: anonymous.Answer | Exception) -> bytes:
    async def ask(url: str, trust: anonymous.Trust) -> anonymous.Answer:
        assert (url, trust) == (URL, anonymous.Trust(None))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return await manifests.fetch(URL, ask)


async def test_what_is_there_is_taken():
    assert await fetched(anonymous.Answer(200, b"kind: Pod")) == b"kind: Pod"


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (anonymous.Answer(404, b""), errors.Refused, "NoManifest"),
        (anonymous.Answer(302, b""), errors.Refused, "NoManifest"),
        (anonymous.Answer(503, b""), errors.Unavailable, "ServerNotReady"),
        (anonymous.Troubled(diagnosis.Trouble.UNREACHABLE, "no route"), errors.Unavailable, None),
    ],
)
async def test_no_answer_has_the_question_in_it(answer, error, reason):
    with pytest.raises(error) as refused:
        await fetched(answer)
    assert reason in {None, refused.value.reason}
    assert "secret" not in refused.value.message


async def test_no_other_scheme_is_asked():
    with pytest.raises(errors.Refused, match="is not an https URL"):
        await manifests.fetch("http://example.com/web.yaml")
