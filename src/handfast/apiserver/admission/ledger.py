# SPDX-License-Identifier: Apache-2.0
"""Admission: the issuance ledger is only continued, whoever writes. `rules.ledger.admission` decides.

1. A new segment continues the one before it in its chain. This server's copy of that one must be current. One that is there already is
   answered as such (AlreadyExists), also where it is the first: of two signers that begin a chain at once, the one that comes second looks again.
2. A segment that is changed only grows at its end. Its metadata may change, with two exceptions. It has no owner: the
   garbage collector would delete it with that. It has no finalizers: they would keep it for ever.
3. Whoever adds an entry may sign for the signer it names: the verb `sign` on that signer. An entry is a statement of
   that signer, and nodes are let back in by such statements. Whoever changes the spec without adding one, which is to
   seal it, may sign for one of the signers in it. A segment is not made without an entry.
4. Only the oldest segment goes, and only when every certificate in it has expired.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_ledger.py |
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

from handfast.api import handfast_kinds, jsonpath, status
from handfast.apiserver.admission import plugin
from handfast.rules import decision
from handfast.rules.certificates import admission as certificate_admission
from handfast.rules.ledger import admission as ledger_rules
from handfast.rules.ledger import entries, segments

_PLUGIN: Final = "IssuanceLedger"
_PREFIX: Final = "/".join((*handfast_kinds.ISSUANCE_LOGS, ""))
# 2. what metadata never has
_NEVER: Final = (
    (
        "ownerReferences",
        "SegmentOwned",
        "a segment of the ledger has no owner: whoever is named as one could have it deleted",
    ),
    ("finalizers", "SegmentHeld", "a segment of the ledger has no finalizers: they would keep it when it is to go"),
)


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse whatever does not continue the ledger."""
    if write.document is None:
        _admit_delete(write, context)
        return
    new = segments.read(write.document)
    old = None if write.old is None else segments.read(write.old)
    if old is None:
        # 1. one that is there already is no refusal
        if context.find(_PREFIX, "", write.name) is not None:
            raise status.already_exists(write.kind.plural, write.kind.group, write.name)
        # 1. a new segment continues the one before it
        before = context.find(_PREFIX, "", segments.segment_name(new.sequence - 1, new.chain))
        verdict: decision.Decision = ledger_rules.judge_create(
            write.name,
            new,
            None if before is None else segments.read(before),
            is_first=_is_first(new.chain, context),
        )
    else:
        # 2. a segment only grows at its end
        verdict = ledger_rules.judge_update(old, new)
    plugin.require(write, verdict)
    for field, reason, why in _NEVER:
        if jsonpath.sequence(write.document, "metadata", field):
            raise plugin.Refusal(write, decision.Deny(reason, why, _PLUGIN))
    if new != old:
        _require_signer(write, context, new, 0 if old is None else len(old.entries))


def _is_first(chain: str, context: plugin.Context) -> bool:
    """Whether a chain has no segment at all. Names are in order: the first one behind the prefix tells."""
    prefix = segments.prefix(chain)
    item = next(context.replica.collection(_PREFIX).iterate("", ("", prefix)), None)
    return item is None or not item.name.startswith(prefix)


def _require_signer(write: plugin.Write, context: plugin.Context, new: segments.Segment, known: int) -> None:
    # 3. who may sign for the signer that is named
    user = write.user

    def judge(signer: str) -> decision.Decision:
        return certificate_admission.for_signer("sign", signer, user.name, user.groups, context.decide)

    added = entries.signers_of(new.entries[known:])
    for signer in added:
        plugin.require(write, judge(signer))
    # Not all of them: else one signer's entry would keep the others from sealing, and so from signing.
    if not added and not any(isinstance(judge(signer), decision.Approve) for signer in entries.signers_of(new.entries)):
        why = "only who may sign for one of the signers in a segment may seal it, or make one"
        raise plugin.Refusal(write, decision.Deny("SignerNotPermitted", why, _PLUGIN))


def _admit_delete(write: plugin.Write, context: plugin.Context) -> None:
    # 4. only the oldest, and only when all in it has expired
    gone = segments.read(write.old or {})
    collection = context.replica.collection(_PREFIX)
    verdict = ledger_rules.judge_delete(
        gone,
        context.now(),
        is_oldest=collection.get("", segments.segment_name(gone.sequence - 1, gone.chain)) is None,
        is_newest=collection.get("", segments.segment_name(gone.sequence + 1, gone.chain)) is None,
    )
    plugin.require(write, verdict)


ROW = plugin.Row(
    _PLUGIN,
    frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}),
    admit,
    frozenset({handfast_kinds.ISSUANCE_LOGS}),
)
