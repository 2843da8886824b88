# SPDX-License-Identifier: Apache-2.0
"""Drift: every way in which a path can differ is told by name."""

import pytest

from handfast.rules.machine_config import drift

HERE = drift.Entry(drift.FILE, "aa", 0o644, 0, 0)
LINK = drift.Entry(drift.LINK, target="/a")


@pytest.mark.parametrize(
    ("wanted", "seen", "words"),
    [
        (HERE, HERE, ""),
        (LINK, LINK, ""),
        (drift.NOTHING, drift.NOTHING, ""),
        (HERE, drift.NOTHING, "is gone"),
        (LINK, drift.NOTHING, "is gone"),
        (HERE, LINK, "is no file any more"),
        (HERE, drift.Entry(drift.OTHER), "is no file any more"),
        (LINK, HERE, "is no symbolic link any more"),
        (drift.NOTHING, LINK, "is there again"),
        (LINK, drift.Entry(drift.LINK, target="/b"), "leads to /b, not to /a"),
        (HERE, drift.Entry(drift.FILE, "bb", 0o644, 0, 0), "has other contents"),
        (HERE, drift.Entry(drift.FILE, "aa", 0o600, 0, 0), "has the mode 0600, not 0644"),
        (HERE, drift.Entry(drift.FILE, "aa", 0o644, 0, 5), "belongs to 0:5, not to 0:0"),
    ],
)
def test_a_difference_is_told_in_words(wanted, seen, words):
    assert drift.difference(wanted, seen) == words


def test_every_path_that_differs_is_named_and_a_missing_one_is_gone():
    drifts = drift.compare({"/b": HERE, "/a": HERE, "/c": drift.NOTHING}, {"/a": HERE})
    assert drifts == (drift.Drift("/b", "is gone"),)
    assert drift.sentence(drifts) == "not as the configuration left it: /b is gone"
    assert drift.sentence(()) == ""


def test_a_sentence_has_a_bounded_length():
    many = tuple(drift.Drift("/" + "x" * 4000 + str(number), "is gone") for number in range(100))
    text = drift.sentence(many)
    assert len(text.encode()) <= 1024
    assert text.endswith("; and 97 more")
