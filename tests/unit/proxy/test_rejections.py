# SPDX-License-Identifier: Apache-2.0
"""What Envoy rejects is sent again."""

from __future__ import annotations

from handfast.proxy import rejections
from handfast.rules.envoy import resources
from handfast.runtime import tasks
from handfast.wire import ads
from tests.world.clock import MovableClock, settle

KEY = (resources.Kind.LISTENER, "inbound-80")


class Rejecting(ads.Ads):
    """Of which Envoy takes nothing."""

    def __init__(self) -> None:
        super().__init__(MovableClock())
        self.sent = 0
        self.put(*KEY, {"name": KEY[1]})
        self.reject()

    def reject(self) -> None:
        self._rejected[KEY] = self._present(KEY), "address in use"
        self._news.set()

    def again(self, key: ads.Key) -> None:
        super().again(key)
        self.sent += 1


async def test_it_is_sent_again_after_a_delay_that_grows_and_begins_anew():
    sent, clock = Rejecting(), MovableClock()
    async with tasks.Group("test") as group:
        group.start(rejections.retry(sent, clock), name="retry")
        for attempt, shortest in enumerate([0.5, 1.0, 2.0]):
            await settle()
            await clock.advance(shortest * 0.99)
            assert sent.sent == attempt
            await clock.advance(shortest)
            assert sent.sent == attempt + 1
            # Sent again, it is not rejected until Envoy says so.
            assert sent.rejected() == {}
            sent.reject()
        await settle()
        await clock.advance(10)
        # Nothing for a minute: from the beginning.
        await clock.advance(120)
        sent.reject()
        await settle()
        before = sent.sent
        await clock.advance(1)
        assert sent.sent == before + 1
