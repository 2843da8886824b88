# SPDX-License-Identifier: Apache-2.0
"""When a refusal is believed. How the keeper uses that is in `test_keeping`, with a node's requests in `node/test_certificates`."""

from __future__ import annotations

from handfast import errors
from handfast.client import issuance, refusals

NO = errors.Refused("no", reason="Forbidden")
NEVER = errors.Refused("never", reason="Revoked")
PASSING = issuance.Outlook(refusal=NO)
FINAL = issuance.Outlook(refusal=NEVER, final=True)


def test_a_final_refusal_is_believed_at_once():
    refused = refusals.Refusals(ways=1)
    refused.note(FINAL, 0.0)
    assert refused.believed(0.0) is NEVER


def test_with_two_ways_both_must_be_refused_for_good():
    refused = refusals.Refusals(ways=2)
    refused.note(FINAL, 0.0)
    assert refused.believed(0.0) is None
    refused.note(FINAL, 1.0)
    assert refused.believed(1.0) is NEVER


def test_another_refusal_is_believed_when_nothing_else_was_heard_for_long_enough():
    refused = refusals.Refusals(ways=1)
    refused.note(PASSING, 5.0)
    assert refused.believed(5.0 + refusals.BELIEVED_SECONDS - 1) is None
    assert refused.believed(5.0 + refusals.BELIEVED_SECONDS) is NO
    assert refused.last() is NO


def test_a_final_word_is_told_rather_than_another():
    refused = refusals.Refusals(ways=2)
    refused.note(PASSING, 0.0)
    refused.note(FINAL, 1.0)
    assert refused.believed(refusals.BELIEVED_SECONDS) is NEVER


def test_anything_else_begins_the_time_anew():
    refused = refusals.Refusals(ways=1)
    refused.note(PASSING, 0.0)
    refused.note(issuance.Outlook(), 10.0)
    assert refused.last() is None
    refused.note(PASSING, 20.0)
    assert refused.believed(refusals.BELIEVED_SECONDS) is None
    assert refused.left(20.0) == refusals.BELIEVED_SECONDS
