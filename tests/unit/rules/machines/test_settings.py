# SPDX-License-Identifier: Apache-2.0
"""The machine-approver's settings: what may be written, and what the operator reads where it may not."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.machines import bootstrapper, settings


def test_nothing_written_is_every_default():
    assert settings.parse("") == settings.parse("---\n") == settings.parse("{}") == settings.DEFAULT
    assert settings.DEFAULT.join_within == datetime.timedelta(hours=2)
    assert settings.DEFAULT.identities == (bootstrapper.NODE_BOOTSTRAPPER,)


def test_the_flag_is_the_default_and_the_file_stands_over_it():
    day = datetime.timedelta(days=1)
    assert settings.parse("", day).join_within == day
    assert settings.parse("joinWithin: 3h", day).join_within == datetime.timedelta(hours=3)
    assert settings.parse("joinWithin:", day).join_within == day


def test_everything_that_may_be_written_is_read():
    text = """
nodeClientCert:
  disabled: true
joinWithin: 6h
bootstrapIdentities:
- user: system:serviceaccount:fleet:joiner
  groups: [system:serviceaccounts, "system:serviceaccounts:fleet", system:authenticated]
sourceAddress: true
credential: per-machine
readmission: true
"""
    identity = bootstrapper.Identity(
        "system:serviceaccount:fleet:joiner",
        frozenset({"system:serviceaccounts", "system:serviceaccounts:fleet"}),
    )
    assert settings.parse(text) == settings.Settings(
        disabled=True,
        join_within=datetime.timedelta(hours=6),
        identities=(identity,),
        source_address=True,
        credential="per-machine",
        readmission=True,
    )


def test_the_real_products_document_is_read():
    assert settings.parse("nodeClientCert:\n  disabled: true\n").disabled
    assert not settings.parse("nodeClientCert: {}").disabled


@pytest.mark.parametrize(
    ("text", "message", "allowed"),
    [
        pytest.param("[", "config.yaml cannot be read", "write one YAML document", id="no YAML"),
        pytest.param("a: 1\na: 2", "config.yaml: a is there twice", "write each key once", id="a key twice"),
        pytest.param(
            "- a", 'config.yaml: ["a"] is not allowed', "an object with nodeClientCert, joinWithin", id="a list"
        ),
        pytest.param(
            "joinwithin: 2h", 'joinwithin: "2h" is not allowed', "no such key; there are", id="a misspelt key"
        ),
        pytest.param(
            "nodeClientCert: off", "nodeClientCert: false is not allowed", "an object with disabled", id="no object"
        ),
        pytest.param(
            "nodeClientCert: {disabled: maybe}",
            'nodeClientCert.disabled: "maybe" is not allowed',
            "true or false",
            id="no boolean",
        ),
        pytest.param(
            "nodeClientCert: {enabled: true}", "nodeClientCert.enabled: true is not allowed", "no such key", id="below"
        ),
        pytest.param(
            "joinWithin: 2", "joinWithin: 2 is not allowed", "a duration of 1m to 365d, as in 2h", id="a number"
        ),
        pytest.param("joinWithin: soon", 'joinWithin: "soon" is not allowed', "a duration of", id="no duration"),
        pytest.param("joinWithin: 59s", 'joinWithin: "59s" is not allowed', "a duration of", id="too short"),
        pytest.param("joinWithin: 366d", 'joinWithin: "366d" is not allowed', "a duration of", id="too long"),
        pytest.param("credential: none", 'credential: "none" is not allowed', "shared or per-machine", id="credential"),
        pytest.param(
            "sourceAddress: 1", "sourceAddress: 1 is not allowed", "true or false", id="a number for a boolean"
        ),
        pytest.param("bootstrapIdentities: []", "bootstrapIdentities: [] is not", "with one at least", id="nobody"),
        pytest.param("bootstrapIdentities: {}", "bootstrapIdentities: {} is not", "a list of {user", id="no list"),
        pytest.param(
            "bootstrapIdentities: [{user: a}]",
            'bootstrapIdentities[0]: {"user": "a"} is',
            "both user and groups",
            id="half",
        ),
        pytest.param(
            "bootstrapIdentities: [{user: '', groups: []}]",
            'bootstrapIdentities[0].user: "" is not allowed',
            "the name of a user",
            id="no user",
        ),
        pytest.param(
            "bootstrapIdentities: [{user: a, groups: [1]}]",
            "bootstrapIdentities[0].groups: [1] is not allowed",
            "a list of groups",
            id="no group",
        ),
        pytest.param(
            "bootstrapIdentities: [{user: 'system:node:w1', groups: []}]",
            'bootstrapIdentities[0].user: "system:node:w1" is not allowed',
            "judged elsewhere",
            id="a node",
        ),
        pytest.param(
            "bootstrapIdentities: [{user: 'system:anonymous', groups: []}]",
            'bootstrapIdentities[0].user: "system:anonymous" is',
            "judged elsewhere",
            id="anybody",
        ),
        pytest.param(f"credential: {'x' * 200}", f'credential: "{"x" * 79}… is not allowed', "shared", id="cut short"),
    ],
)
def test_what_is_not_allowed_is_refused_by_field_and_value(text, message, allowed):
    with pytest.raises(settings.Unreadable) as caught:
        settings.parse(text)
    assert message in caught.value.message
    assert allowed in (caught.value.hint or "")
    assert caught.value.reason == "SettingsUnreadable"


def test_readmission_needs_a_proof():
    with pytest.raises(settings.Unreadable, match="readmission: true is not allowed"):
        settings.parse("readmission: true")
    assert settings.parse("readmission: true\nsourceAddress: true").readmission
    assert settings.parse("readmission: true\ncredential: per-machine").readmission
    assert not settings.parse("readmission: false").readmission


@pytest.mark.parametrize(
    ("before", "after", "less"),
    [
        ("", "", ()),
        ("", "sourceAddress: true\ncredential: per-machine\nnodeClientCert: {disabled: true}\njoinWithin: 1h", ()),
        ("nodeClientCert: {disabled: true}", "", ("client requests are approved again",)),
        ("joinWithin: 1h", "", ("joinWithin is longer, 2h",)),
        ("sourceAddress: true", "credential: per-machine", ("sourceAddress is off",)),
        ("credential: per-machine", "sourceAddress: true", ("credential is shared",)),
        ("sourceAddress: true", "sourceAddress: true\nreadmission: true", ("readmission is on",)),
        (
            "",
            "bootstrapIdentities: [{user: eve, groups: [editors]}]",
            ('["eve"] counts as a bootstrap identity',),
        ),
        (
            "sourceAddress: true\ncredential: per-machine",
            "joinWithin: 3h",
            ("joinWithin is longer, 3h", "sourceAddress is off", "credential is shared"),
        ),
    ],
)
def test_what_asks_for_less_is_named(before: str, after: str, less: tuple[str, ...]):
    assert settings.weaker(settings.parse(before), settings.parse(after)) == less
