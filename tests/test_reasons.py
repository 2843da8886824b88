# SPDX-License-Identifier: Apache-2.0
"""Every reason that a user can meet is explained (`handfast explain`), and nothing is explained that nobody says any more.

Which reasons there are is `reason_scan`'s to find, in the source. What the entries say is held to the code as pages are: their commands
are read by the real commands, and what they name in backticks is there.
"""

from __future__ import annotations

import re
import textwrap
import types

import pytest

from handfast.api import status
from handfast.cli import reasons
from tests import page_facts, reason_scan, source_text, test_page_claims
from tests.page_facts import ROOT

# Words that stand where a reason could, and are none -> what they are.
OTHERS = {
    "Ca": "a part of the name of a setting, before its description",
    "Cert": "a part of the name of a setting, before its description",
    "Key": "a part of the name of a setting, before its description",
    "Equal": "an operator of a toleration, in a list of what is allowed",
    "Machine": "a kind, before its description",
    "MachineConfig": "a kind, before its description",
    "MachineConfigPool": "a kind, before its description",
    "MeshPolicy": "a kind, before its description",
    "Pod": "a kind, before a sentence about Pods",
    "Pods": "the head of a line of `node status`",
    "Updated": "the type of a condition, before the description of its column",
    "Updating": "the type of a condition, before the description of its column",
}
# Reasons that the syntax does not tell -> the text in the source that does, and where they come from.
ELSEWHERE = {
    "AlreadyApproved": ('f"Already{opposite}"', "put together by `csr deny`"),
    "AlreadyDenied": ('f"Already{opposite}"', "put together by `csr approve`"),
    "MissingIdentity": ('f"Missing{_word(part)}"', "put together from the parts of a Certify call"),
    "MissingToken": ('f"Missing{_word(part)}"', "put together from the parts of a Certify call"),
    "MissingCertificateSigningRequest": ('f"Missing{_word(part)}"', "put together from the parts of a Certify call"),
    "IdentityTooLarge": ('f"{_word(part)}TooLarge"', "put together from the parts of a Certify call"),
    "CertificateSigningRequestTooLarge": ('f"{_word(part)}TooLarge"', "put together from the parts of a Certify call"),
    "AnonymousElsewhere": ('Unauthorized("AnonymousElsewhere"', "the detail is a verdict's"),
    "NotAMachineConfigServer": ('"NotAMachineConfigServer"', "in place of NotAnAPIServer"),
    "NotAnAddressOfTheNode": ('NOT_ITS_ADDRESS = "NotAnAddressOfTheNode"', "chosen by the check that failed"),
    "ContentDeletionFailed": ('("ContentDeletionFailed"', "a condition of a Namespace, in a table"),
    "SomeResourcesRemain": ('("SomeResourcesRemain"', "a condition of a Namespace, in a table"),
    "SomeFinalizersRemain": ('("SomeFinalizersRemain"', "a condition of a Namespace, in a table"),
    "PluralConflict": ('"PluralConflict"', "a condition of a CustomResourceDefinition, in a table"),
    "SingularConflict": ('"SingularConflict"', "a condition of a CustomResourceDefinition, in a table"),
    "ShortNamesConflict": ('"ShortNamesConflict"', "a condition of a CustomResourceDefinition, in a table"),
    "KindConflict": ('"KindConflict"', "a condition of a CustomResourceDefinition, in a table"),
    "ListKindConflict": ('"ListKindConflict"', "a condition of a CustomResourceDefinition, in a table"),
    "TrustAnchorExpired": ('("TrustAnchorExpired"', "one of a pair that a check chooses from"),
    "TrustAnchorEndsSoon": ('"TrustAnchorEndsSoon")', "one of a pair that a check chooses from"),
    "IssuerEndsSoon": ('"IssuerEndsSoon")', "one of a pair that a check chooses from"),
    "OwnerReferences": ('"OwnerReferences")', "what a node may not change of its Node, in a table"),
    "Taints": ('"Taints")', "what a node may not change of its Node, in a table"),
    "SourcesReadable": ('READABLE: Final = "SourcesReadable"', "a condition among the sources of client CAs"),
    "Drift": ('f"{DRIFT}: ', "begins what a Node says of its configuration"),
    "RestoredByHand": ('f"{RESTORED_BY_HAND}: ', "begins what a Node says of its configuration"),
    "WaitingForSigner": ('SIGNING = "WaitingForSigner"', "a verdict of `csr explain`"),
    "WillBeApproved": ('APPROVING = "WillBeApproved"', "a verdict of `csr explain`"),
    "WillFail": ('FAILING = "WillFail"', "a verdict of `csr explain`"),
}
_SENTENCE = re.compile(r"[A-Z`].*[.]")


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[tuple[str, int], ...]]:
    return reason_scan.found()


@pytest.fixture(scope="module")
def page() -> types.ModuleType:
    return source_text.script("reasons")


def test_every_reason_is_explained(found):
    missing = {**found, **dict.fromkeys(ELSEWHERE, ())}.keys() - reasons.catalogue().keys() - OTHERS.keys()
    assert [f"{word}: {found.get(word)}" for word in sorted(missing)] == [], (
        "add entries to src/handfast/data/reasons.toml"
    )


def test_nothing_is_explained_that_nobody_says(found):
    left_over = reasons.catalogue().keys() - found.keys() - ELSEWHERE.keys() - status.CODES.keys()
    assert sorted(left_over) == [], "remove these entries from src/handfast/data/reasons.toml"


def test_the_reasons_of_kubernetes_are_explained():
    assert sorted(status.CODES.keys() - reasons.catalogue().keys()) == []


def test_words_that_are_no_reasons_are_still_met(found):
    assert sorted(OTHERS.keys() - found.keys()) == []
    assert sorted(OTHERS.keys() & reasons.catalogue().keys()) == []


def test_what_the_syntax_does_not_tell_is_still_in_the_source(found):
    text = "".join(path.read_text() for path in sorted(page_facts.SOURCE.rglob("*.py")))
    assert [word for word, (written, _why) in ELSEWHERE.items() if written not in text] == []
    assert sorted(ELSEWHERE.keys() & found.keys()) == []


def test_the_scan_sees_enough(found):
    """A rule that sees nothing any more would let new reasons pass."""
    assert len(found) > 650
    # By keyword, by position, as an attribute, in a table, before a sentence, in an enumeration, through a constant, as a cause.
    for word in (
        "NoKubeconfig",
        "IssuerNotReady",
        "StoreFull",
        "NoPin",
        "AccountGone",
        "ProxyMissing",
        "NodeIsAlive",
        "FieldValueTooMany",
    ):
        assert word in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('raise errors.Refused("x", reason="Given")', {"Given"}),
        ('raise errors.Refused("x", reason="One" if y else "Other")', {"One", "Other"}),
        ('class Bad(errors.Refused):\n    reason = "Bad"', {"Bad"}),
        ('NAME = "Named"\nraise errors.Refused("x", reason=NAME)', {"Named"}),
        ('def f():\n    reason = "Local"\n    return reason', {"Local"}),
        ('def f():\n    word = "Followed"\n    raise errors.Refused("x", reason=word)', {"Followed"}),
        ('ROWS = {1: "First", 2: "Second"}\nraise errors.Refused("x", reason=ROWS[y])', {"First", "Second"}),
        ('ROWS = {1: "First"}\nraise errors.Refused("x", reason=ROWS.get(y, "Default"))', {"First", "Default"}),
        ('return {"type": "Ready", "reason": "Conditional"}', {"Conditional"}),
        ('raise _refused("Told", f"the {x} is not there")', {"Told"}),
        ('ROW = (f, "InTable", "must be six letters")', {"InTable"}),
        ('SAID = "it is not there"\nf("Told", SAID)', {"Told"}),
        ('class WhyReason(enum.StrEnum):\n    A = "Enumerated"', {"Enumerated"}),
        ('def f(x, reason="Default"): ...', {"Default"}),
        (
            'from handfast.bootstrap import cluster_info\nf("x", reason=cluster_info.CREDENTIALS)',
            {"CredentialsInClusterInfo"},
        ),
        ('from handfast.store import protocol\nf("x", reason=protocol.StoreFull.reason)', {"StoreFull"}),
        ('return decision.Deny("Judged", sentence, RULE)', {"Judged"}),
        ('parts.column("Column", "What it is for")', set()),
        ('x = "Free"', set()),
        ('raise errors.Refused("x", reason="no word")', set()),
    ],
)
def test_a_reason_is_seen_wherever_it_stands(text, words):
    module = reason_scan.read("made_up", textwrap.dedent(text))
    assert {word for _, seen in reason_scan.words_of(module) for word in seen} == words


# What the entries say


def test_entries_are_written_in_sentences():
    for entry in reasons.catalogue().values():
        assert reason_scan.WORD.fullmatch(entry.reason), entry.reason
        for text in (entry.means, entry.do):
            assert _SENTENCE.fullmatch(text), f"{entry.reason}: {text}"
            assert len(text) <= 240, f"{entry.reason}: {text}"


def test_pages_of_entries_exist():
    pages = {entry.page for entry in reasons.catalogue().values()}
    assert len(pages) > 15
    assert [
        page for page in sorted(pages) if not re.fullmatch(r"docs/[\w/-]+\.md", page) or not (ROOT / page).is_file()
    ] == []


def test_commands_of_entries_are_understood():
    assert test_page_claims.misread_lines(_said()) == []


def test_what_entries_name_is_there():
    found = test_page_claims.unknown_words(_said())
    assert [f"there is no {what} {word}" for word, what in found if word not in test_page_claims.FOREIGN] == []


def _said() -> str:
    return "\n\n".join(f"{entry.means} {entry.do}" for entry in reasons.catalogue().values())


# The page


def test_the_page_is_as_the_entries_are(page):
    assert page.PAGE.read_text() == page.page(), "run `python scripts/reasons.py`"


def test_an_entry_that_changes_makes_the_page_stale(page, monkeypatch, tmp_path):
    text = page.SOURCE.read_text()
    changed = tmp_path / "reasons.toml"
    changed.write_text(text.replace("The bootstrap token has expired.", "It is over."))
    before = page.page()
    monkeypatch.setattr(page, "SOURCE", changed)
    assert "It is over." in page.page() != before
    assert page.main(["--check"]) == 1
