# SPDX-License-Identifier: Apache-2.0
"""What is looked at in a patch itself, before it is applied to anything."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.api.codec import nesting
from handfast.apiserver.verbs import patches


def test_keys_that_are_given_twice_are_named():
    assert patches.odd_parts(patches.MERGE_PATCH, b'{"a":1,"a":2}') == ['duplicate field "a"']
    assert patches.odd_parts(patches.JSON_PATCH, b'[{"op":"test","odd":1}]') == ['json patch unknown field "[0].odd"']


# At each of these depths one of the readers of JSON gives up, and which one depends on how deep the caller is already.
@pytest.mark.parametrize("depth", [nesting.MAX_DEPTH, 500, *range(880, 1000)])
def test_a_patch_that_is_too_deep_to_look_for_repeated_keys_is_refused(depth):
    for media in (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC):
        with pytest.raises(status.StatusError) as refusal:
            patches.odd_parts(media, b'{"x":1,"x":2,"a":' + b"[" * depth + b"]" * depth + b"}")
        assert refusal.value.reason == "BadRequest"
