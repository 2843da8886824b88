# SPDX-License-Identifier: Apache-2.0
"""Admission: the issuance ledger is only continued, whoever writes. What continues it decides `rules.ledger_admission`.

1. A segment that is made continues the one before it, of which this server's copy must be current.
2. A segment that is changed only grows at its end; metadata may change, except that nobody becomes its owner, for whom
   the garbage collector would delete it, and that it has no finalizers, which would keep it for ever.
3. Whoever adds an entry may sign for the signer it names: the verb `sign` on that signer. An entry is a statement of
   that signer, and nodes are let back in by such statements. Whoever changes the spec without adding one, which is to
   seal it, may sign for one of the signers in it. A segment is not made without an entry.
4. Only the oldest segment goes, and only when every certificate in it has expired.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_ledger_admission.py |
|---|---|---|---|---|
| an administrator | everything | change or take out an entry | 2 | test_nobody_changes_an_entry |
| an administrator | everything | delete the segment with their own entry | 4 | test_what_is_in_force_stays |
| who may patch any object | no signer | put a key on record for a node | 3 | test_who_may_not_sign_adds_nothing |
| who may patch any object | no signer | seal the open segment, again and again | 3 | test_who_may_not_sign_seals_nothing |
| who may patch any object | finalizers of their own | keep segments from ever going | 2 | test_nothing_holds_a_segment |
| who may patch any object | an owner that is gone | have the garbage collector delete a segment | 2, 4 | test_nobody_owns_a_segment |
"""

from __future__ import annotations

from typing import Final

from handfast.api import handfast_kinds, jsonpath
from handfast.apiserver import admission
from handfast.rules import certificate_admission, decision, ledger, ledger_entries
from handfast.rules import ledger_admission as rules

_PLUGIN: Final = "IssuanceLedger"
_PREFIX: Final = "/".join((*handfast_kinds.ISSUANCE_LOGS, ""))
# 2.
_NEVER: Final = (
    (
        "ownerReferences",
        "SegmentOwned",
        "a segment of the ledger has no owner: whoever is named as one could have it deleted",
    ),
    ("finalizers", "SegmentHeld", "a segment of the ledger has no finalizers: they would keep it when it is to go"),
)


def admit(asked: admission.Attributes, context: admission.Context) -> None:
    """Refuse whatever does not continue the ledger."""
    if asked.document is None:
        _admit_delete(asked, context)
        return
    new = ledger.read(asked.document)
    old = None if asked.old is None else ledger.read(asked.old)
    if old is None:
        # 1.
        before = context.find(_PREFIX, "", ledger.segment_name(new.sequence - 1))
        verdict: decision.Decision = rules.judge_create(
            asked.name,
            new,
            None if before is None else ledger.read(before),
            is_first=not context.replica.collection(_PREFIX).count(),
        )
    else:
        # 2.
        verdict = rules.judge_update(old, new)
    admission.require(asked, verdict)
    for field, reason, why in _NEVER:
        if jsonpath.sequence(asked.document, "metadata", field):
            raise admission.Refusal(asked, decision.Deny(reason, why, _PLUGIN))
    if new != old:
        _require_signer(asked, context, new, 0 if old is None else len(old.entries))


def _require_signer(asked: admission.Attributes, context: admission.Context, new: ledger.Segment, known: int) -> None:
    # 3.
    user = asked.user

    def judge(signer: str) -> decision.Decision:
        return certificate_admission.for_signer("sign", signer, user.name, user.groups, context.decide)

    added = ledger_entries.signers_of(new.entries[known:])
    for signer in added:
        admission.require(asked, judge(signer))
    # Not all of them: else one signer's entry would keep the others from sealing, and so from signing.
    if not added and not any(
        isinstance(judge(signer), decision.Approve) for signer in ledger_entries.signers_of(new.entries)
    ):
        why = "only who may sign for one of the signers in a segment may seal it, or make one"
        raise admission.Refusal(asked, decision.Deny("SignerNotPermitted", why, _PLUGIN))


def _admit_delete(asked: admission.Attributes, context: admission.Context) -> None:
    # 4.
    gone = ledger.read(asked.old or {})
    segments = context.replica.collection(_PREFIX)
    verdict = rules.judge_delete(
        gone,
        context.now(),
        is_oldest=segments.get("", ledger.segment_name(gone.sequence - 1)) is None,
        is_newest=segments.get("", ledger.segment_name(gone.sequence + 1)) is None,
    )
    admission.require(asked, verdict)


ROW = admission.Row(
    _PLUGIN,
    frozenset({admission.CREATE, admission.UPDATE, admission.DELETE}),
    admit,
    frozenset({handfast_kinds.ISSUANCE_LOGS}),
)
