# SPDX-License-Identifier: Apache-2.0
"""What may be written to the issuance ledger: it is only ever continued, and shortened at its old end.

It looks nothing up (`apiserver.admission.ledger` does), and does not find what went round it (`ledger.verification` does). Entries
are written by `client.ledger`, before the signer hands a certificate out.

Whoever writes a segment must keep to this:

1. A new segment is the first of its chain, or the next after one that is sealed, and names that one's hash.
2. Entries are only ever added at the end, numbered on, each with its link, each in its one encoding.
3. Sequence, previous and chain never change.
4. A sealed segment has at least one entry and the link of its last as its hash, and never changes again.
5. Only the oldest segment may be deleted, if it is sealed, not the only one, and all its certificates have expired. The
   next one still names its hash: that is where the chain then begins.
6. A signer writes in its own chain: the identity service of the mesh in `mesh`, all others in the one without a name. An entry elsewhere
   would be kept for too long, or not long enough.

| who | holding | tries | stopped by | shown in tests/unit/rules/ledger/test_admission.py |
|---|---|---|---|---|
| an administrator | update on issuancelogs | take an entry out, or change one | 2, 4 | test_entries_are_only_added |
| an administrator | create on issuancelogs | put a segment beside the chain | 1 | test_a_new_segment_continues_the_chain |
| the identity service | create on issuancelogs | have its entry forgotten late, or early | 6 | test_a_signer_writes_in_its_own_chain |
| an administrator | delete on issuancelogs | have the newest forgotten | 5 | test_only_the_oldest_may_be_deleted |
"""

from __future__ import annotations

import datetime
from typing import Final

from handfast import errors
from handfast.rules import decision
from handfast.rules.ledger import entries, segments

_RULE: Final = "issuance-ledger"
_FINE: Final = decision.Approve("Continues", "the ledger is continued", _RULE)


def judge_create(
    name: str, new: segments.Segment, before: segments.Segment | None, *, is_first: bool
) -> decision.Approve | decision.Deny:
    """Whether a segment may be made. `before` is the one whose number comes before; `is_first`: its chain has none at all."""
    if name != new.name:
        return _deny("WrongName", f'segment {new.sequence} is to be called "{new.name}"')
    # 1. the first of its chain, or the next after a sealed one
    if is_first and new.sequence == 1 and new.previous == segments.GENESIS:
        return _judge_tail(segments.following(None, new.chain), new)
    if before is None or not before.sealed:
        return _deny("NotNext", f"segment {new.sequence - 1} is not there, or is not sealed")
    if new.previous != before.hash:
        return _deny("NotNext", f"spec.previous is not the hash of segment {before.sequence}")
    return _judge_tail(segments.following(before), new)


def judge_update(old: segments.Segment, new: segments.Segment) -> decision.Approve | decision.Deny:
    """Whether a segment may become this."""
    if new == old:
        return _FINE
    # 4. a sealed segment never changes
    if old.sealed:
        return _deny("Sealed", f"segment {old.sequence} is sealed and never changes again")
    # 3. sequence, previous and chain never change
    if (new.sequence, new.previous, new.chain) != (old.sequence, old.previous, old.chain):
        return _deny("SegmentMoved", "spec.sequence, spec.previous and spec.chain of a segment never change")
    # 2. entries are only ever added
    if new.entries[: len(old.entries)] != old.entries:
        return _deny("EntriesChanged", "entries are only ever added at the end")
    return _judge_tail(old, new)


def _judge_tail(old: segments.Segment, new: segments.Segment) -> decision.Approve | decision.Deny:
    # 2. numbered on, linked, in their one encoding
    added = new.entries[len(old.entries) :]
    lines = [entries.line_of(stored) for stored in added]
    for line in lines:
        try:
            signer = entries.decode(line).signer
        except errors.Refused as refused:
            return _deny(refused.reason, refused.message)
        # 6. in its own chain
        if segments.chain_of(signer) != new.chain:
            return _deny("WrongChain", f"entries of {signer} are written to the chain {segments.chain_of(signer)!r}")
    if segments.stored_lines(old, lines) != added:
        return _deny("BrokenChain", "an entry's number or link does not continue the chain")
    # 4. sealed with the link of the last entry
    if new.sealed and (not new.entries or new.hash != new.last_link):
        return _deny("WrongHash", "a sealed segment has entries, and the link of the last as spec.hash")
    if not new.sealed and new.hash:
        return _deny("WrongHash", "spec.hash is only set together with spec.sealed")
    return _FINE


def judge_delete(
    gone: segments.Segment, now: datetime.datetime, *, is_oldest: bool, is_newest: bool
) -> decision.Approve | decision.Deny:
    """Whether a segment may be deleted."""
    # 5. only the oldest, sealed, and all expired
    if not is_oldest:
        return _deny("NotOldest", "only the oldest segment of the ledger may be deleted")
    if is_newest or not gone.sealed:
        return _deny("Newest", "the newest segment of the ledger is never deleted")
    until = segments.newest_expiry(gone)
    if until is None or until >= now:
        return _deny("StillInForce", f"segment {gone.sequence} has a certificate that is in force, or cannot be read")
    return _FINE


def _deny(reason: str, sentence: str) -> decision.Deny:
    return decision.Deny(reason, sentence, _RULE)
