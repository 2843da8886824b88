# SPDX-License-Identifier: Apache-2.0
"""The end that a bootstrap ConfigMap names: read, compared, and over where nobody can read it."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.rules.machines import credential_end

END = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def config_map(text: str | None) -> dict[str, object]:
    return {"data": {} if text is None else {"revoke-at": text}}


def test_without_an_end_it_counts_until_somebody_revokes_it():
    for document in (config_map(None), {}, {"data": None}):
        credential_end.require_readable(document)
        assert credential_end.of(document) is None
    assert not credential_end.is_over(None, END)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00.000Z"])
def test_from_that_instant_on_it_is_over(text: str):
    credential_end.require_readable(config_map(text))
    end = credential_end.of(config_map(text))
    assert end == END
    assert not credential_end.is_over(end, END - SECOND)
    assert credential_end.is_over(end, END)


@pytest.mark.parametrize(
    "text", ["", "soon", "4h", "2026-01-31", "2026-01-31T12:00:00", "0001-01-01T00:00:00+14:00", "\ud800"]
)
def test_what_is_no_instant_is_over_and_is_not_shown(text: str):
    with pytest.raises(errors.Refused) as caught:
        credential_end.require_readable(config_map(text))
    assert caught.value.message == "it is no instant, as in 2027-01-31T12:00:00Z: the CAs beside it do not count"
    assert credential_end.is_over(credential_end.of(config_map(text)), END)


def test_a_ca_in_two_places_counts_for_as_long_as_one_of_them_has_it():
    later = END + SECOND
    rows = [({"a", "b", "c"}, END), ({"b"}, later), ({"c"}, None), ({"d"}, None)]
    assert credential_end.by_authority(rows) == {"a": END, "b": later}


def test_the_sentence_names_the_instant():
    assert "until 2026-01-31T12:00:00Z (revoke-at), and does not any more" in credential_end.sentence(END)
