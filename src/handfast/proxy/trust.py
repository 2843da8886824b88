# SPDX-License-Identifier: Apache-2.0
"""Whom a proxy believes: the anchors of its start-up, until the control plane tells others.

It asks nobody: `announcements` hears of new anchors, and `judgements` calls `learn`. Who is believed by them, `credentials`, the clients and Envoy follow (`current`,
`follow`).

1. The anchors of the start-up are the first ones. Their file stays as it was made.
2. New ones come from nobody but the control plane, over a channel on which it has proved its name by the anchors of that moment. That is the
   caller's to see: nothing else calls `learn`.
3. They are read whole, by the rules of the identity service. Those that cannot be used change nothing (`issuer.Unfit`).
4. They are kept before they are believed: what a proxy has acknowledged, it believes after a restart, too. What cannot be kept is not believed,
   and the error is the file's.
5. A restart in the same Pod uses what was kept, where it can be used: it is this user's file, for nobody else, whole, and was learned by a proxy that
   began with the same first anchors. Otherwise the first ones count, and that is logged.

Not checked: who else may write to the store directory (`store_directory` says who sees to that). Nor the ends of anchors: each chain is verified by
the time.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_trust.py |
|---|---|---|---|---|
| a stranger | the address of the control plane, a CA of his own | make a proxy believe his root | 2 | test_a_false_identity_service_is_not_believed_by_its_own_root |
| who had the old root | its key, after it was removed | answer as the identity service | 2 | test_after_the_old_root_is_gone_its_service_is_not_believed |
| who can write one announcement wrong | no CA, or anchors without end | leave the proxy without anchors | 3 | test_anchors_that_cannot_be_used_change_nothing |
| another user of the machine | a file, or a link, in a directory that he may write to | have his root believed after a restart | 5 | test_kept_anchors_of_another_or_for_others_are_not_used |
| an earlier Pod | its directory, left behind | have its anchors believed by the next Pod | 5 | test_anchors_learned_from_other_first_ones_are_not_used |
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Final

import structlog

from handfast import errors
from handfast.pki import bundles
from handfast.rules.mesh import issuer
from handfast.runtime import files, followers

NAME: Final = "learned-anchors.pem"
_LIMIT: Final = 4 << 20
# Before the certificates: text outside of the blocks is not read by who reads PEM.
_HEAD: Final = "# learned by a proxy that began with the trust anchors {}\n"
_log = structlog.get_logger("handfast.proxy")


class Trust:
    """The anchors of the moment. `kept` is where learned ones are kept; None: nowhere."""

    def __init__(self, first: bundles.TrustBundle, kept: pathlib.Path | None) -> None:
        # 1. the first ones
        self._head = _HEAD.format(first.digest).encode("ascii")
        self._kept = kept
        self._current = first
        self._followers = followers.Followers()
        if kept is not None:
            self._resume(kept)

    @property
    def current(self) -> bundles.TrustBundle:
        """Who is believed now."""
        return self._current

    def learn(self, data: bytes) -> bool:
        """Believe these anchors, and no others, from now on; whether they differ from those before. It raises, and changes nothing, by 3 and 4."""
        # 3. all of them can be used
        bundle = issuer.read_anchors(data)
        if bundle.ders == self._current.ders:
            return False
        if self._kept is not None:
            # 4. kept, then believed
            files.write_atomically(self._kept, self._head + bundle.to_pem(), mode=0o400)
        self._current = bundle
        _log.info("other trust anchors are believed", anchors=[anchor.fingerprint for anchor in bundle.anchors])
        self._followers.tell()
        return True

    async def follow(self) -> AsyncIterator[bundles.TrustBundle]:
        """The anchors now, and again after each change; only the last of several that come quickly."""
        with self._followers.one() as changed:
            while True:
                changed.clear()
                yield self._current
                await changed.wait()

    def _resume(self, kept: pathlib.Path) -> None:
        try:
            # 5. this user's, and for nobody else
            data = files.read_private(kept, limit=_LIMIT)
            if not data.startswith(self._head):
                raise errors.Refused("they were learned by a proxy that began with others", reason="OtherAnchors")
            self._current = issuer.read_anchors(data)
        except errors.HandfastError as error:
            if error.reason != "FileNotFound":
                # 5. the first ones count
                _log.warning("learned trust anchors are not used", reason=error.reason, error=error.message)


def of_start(first: bundles.TrustBundle, anchors_file: str) -> Trust:
    """With learned anchors beside those of the start-up."""
    return Trust(first, pathlib.Path(anchors_file).with_name(NAME))
