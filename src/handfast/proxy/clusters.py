# SPDX-License-Identifier: Apache-2.0
"""The clusters of destinations, as Envoy is told of them. What they say is `rules.envoy.destinations`'; which there are, `outbound` knows.

1. A cluster is put when something in it changes, and endpoints alone where only they did: a changed cluster ends its connections.
2. Those that nobody follows are parked: the cluster is there, without endpoints, and says why to who calls. Envoy asks for a name once, and so a cluster stays
   for each. Of what was put with it nothing is kept.
3. So many are parked of each sort, and no more: beyond that the oldest is taken away.
"""

from __future__ import annotations

import collections
from typing import Final

from handfast.rules.envoy import destinations as forms
from handfast.rules.envoy import durations, resources
from handfast.wire import ads

MOST_PARKED: Final = 2048

# By name, the oldest first: how often each was called in all when it was parked, or None before anybody has looked.
Parked = collections.OrderedDict[str, int | None]


class Clusters:
    """What Envoy has been told of each, and what holds for all of them (`mode`)."""

    def __init__(self, sent: ads.Ads, *, identity_headers: bool) -> None:
        self.mode = forms.Mode(longest=durations.FIRST, identity_headers=identity_headers)
        self._ads = sent
        self._put: dict[str, dict[resources.Kind, resources.Document]] = {}

    def publish(self, name: str, standing: forms.Standing) -> None:
        """From now on, this is behind the cluster of that name."""
        documents = dict(forms.documents(name, standing, self.mode))
        before = self._put.get(name, {})
        for kind, document in documents.items():
            # 1. only what has changed
            if before.get(kind) != document:
                self._ads.put(kind, name, document)
        for kind in before.keys() - documents.keys():
            self._ads.forget(kind, name)
        self._put[name] = documents

    def park(self, parked: Parked, name: str, why: str, total: int | None = None) -> None:
        """Have the cluster say `why`, and nothing else, as one of those that are parked already."""
        self.publish(name, forms.Standing(why=why))
        # 2. what it was put with is known by its reason
        self._put.pop(name)
        parked[name] = total
        parked.move_to_end(name)
        while len(parked) > MOST_PARKED:
            # 3. the oldest
            oldest, _ = parked.popitem(last=False)
            self._ads.forget(resources.Kind.ENDPOINTS, oldest)
            self.refuse(oldest)

    def refuse(self, name: str) -> None:
        """There is no such cluster."""
        self._ads.absent(resources.Kind.CLUSTER, name)
