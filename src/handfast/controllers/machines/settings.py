# SPDX-License-Identifier: Apache-2.0
"""The machine-approver's settings, followed: the last good ones count. `rules.machines.settings` says what may be written.

1. An unreadable ConfigMap is told of by an Event on it and a metric, and the last good settings stay. Where there are none yet, as
   after a start, nothing is approved: the defaults may be less than the operator asks for.
2. A ConfigMap that is deleted means the defaults. It is made again, empty: whoever explains a request sees by it that a
   machine-approver runs.
3. Where the ConfigMap may not be made, or has no namespace yet, requests are judged all the same. Where it may not be read, nothing
   is approved.
4. Settings that ask for less than those before are told of by a Warning Event, also where that came by a deletion: on the ConfigMap, or
   on its namespace where that takes no Event. What was changed while no machine-approver ran is not seen.
5. Only what the ConfigMap says counts as a change, and whether it is there: labels have nothing judged again.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Final

import prometheus_client

from handfast import errors
from handfast.api import resources, signing_requests, status
from handfast.client import api, cache, events, watch
from handfast.controllers import loop, views
from handfast.rules.machines import bootstrapper, join_window, ownership, settings

FORBIDDEN: Final = "SettingsForbidden"
WEAKENED: Final = "SettingsWeakened"
_HINT: Final = (
    "apply what `handfast serve controllers --print-manifest` prints, which has the right to list and watch the ConfigMap "
    f"{settings.NAMESPACE}/{settings.NAME}"
)

SOURCE: Final = watch.Source(
    resource=resources.CONFIG_MAPS,
    view=views.ConfigMap,
    scope=api.Scope(namespace=settings.NAMESPACE, field_selector=f"metadata.name={settings.NAME}"),
)
_NAMESPACE: Final = events.Regarding(api_version="v1", kind="Namespace", name=settings.NAMESPACE)
UNREADABLE = prometheus_client.Gauge(
    "handfast_machine_approver_settings_unreadable",
    "1 while the machine-approver's settings cannot be read, 0 otherwise.",
)


class Followed:
    """The settings of a process."""

    def __init__(
        self, informer: cache.Informer[views.ConfigMap], join_within: datetime.timedelta = join_window.DEFAULT
    ) -> None:
        self._informer = informer
        self._join_within = join_within
        self._good: settings.Settings | None = None
        self._wrong: errors.HandfastError | None = None
        # What they ask for less than before, until somebody was told.
        self.weakened: tuple[str, ...] = ()
        self._subscribers: list[Callable[[], None]] = []
        informer.subscribe(self._changed)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call it whenever the ConfigMap comes, says something else or goes (5.)."""
        self._subscribers.append(changed)

    async def wait_answered(self) -> None:
        await self._informer.wait_answered()

    @property
    def config_map(self) -> views.ConfigMap | None:
        return self._informer.get(settings.NAMESPACE, settings.NAME)

    @property
    def current(self) -> settings.Settings | None:
        """The last good settings; None: none are known (1, 3)."""
        if self._good is None and self._wrong is None and self._informer.synced:
            return settings.parse("", self._join_within)
        return self._good

    @property
    def trouble(self) -> errors.HandfastError | None:
        """Why they cannot be read; None while they can."""
        if self._informer.refusal:
            message = f"the settings of the machine-approver cannot be read: {self._informer.refusal}"
            return errors.Unavailable(message, reason=FORBIDDEN, hint=_HINT)
        return self._wrong

    @property
    def identities(self) -> Sequence[bootstrapper.Identity]:
        """Whose requests are judged; the default's where nothing is known."""
        return (self.current or settings.DEFAULT).identities

    def judges(self, spec: signing_requests.Spec) -> bool:
        """Whether a request is the machine-approver's, and not csrapproving's."""
        return ownership.is_machine_approvers(spec, self.identities)

    def waits(self, item: signing_requests.Request) -> bool:
        """Whether a request is one to judge."""
        return ownership.waits(item, self.identities)

    def regarding(self) -> events.Regarding:
        """The ConfigMap, as Events name it."""
        there = self.config_map
        uid = "" if there is None else there.metadata.uid
        return events.Regarding(
            api_version="v1", kind="ConfigMap", name=settings.NAME, namespace=settings.NAMESPACE, uid=uid
        )

    def _changed(self, old: views.ConfigMap | None, new: views.ConfigMap | None) -> None:
        before, trouble = self.current, self._wrong
        try:
            text = "" if new is None else (new.data or {}).get(settings.KEY, "")
            self._good, self._wrong = settings.parse(text, self._join_within), None
        except errors.Refused as refused:
            # 1. the last good ones stay
            self._wrong = refused
        after = self.current
        # 4. what they ask for less
        if before is not None and after is not None:
            self.weakened = tuple(dict.fromkeys((*self.weakened, *settings.weaker(before, after))))
        # 5. only what they say, and whether they are there
        if before == after and _said(trouble) == _said(self._wrong) and (old is None) == (new is None):
            return
        for changed in self._subscribers:
            changed()


def _said(trouble: errors.HandfastError | None) -> tuple[str, str | None] | None:
    return None if trouble is None else (trouble.message, trouble.hint)


class Keeper:
    """Sees to it that the ConfigMap is there, and says what is wrong with it."""

    def __init__(self, client: api.Client, followed: Followed, recorder: events.Recorder) -> None:
        self._client = client
        self._followed = followed
        self._recorder = recorder
        self._told = ""

    async def reconcile(self) -> None:
        trouble = self._followed.trouble
        UNREADABLE.set(0 if trouble is None else 1)
        await self._tell_weakened()
        if self._followed.config_map is None and trouble is None:
            await self._make()
        text = "" if trouble is None else f"{trouble.message}; {trouble.hint}; the last good settings stay"
        if trouble is not None and text != self._told:
            await self._recorder.record(self._followed.regarding(), trouble.reason, text, severity=events.WARNING)
        self._told = text

    async def _tell_weakened(self) -> None:
        less, self._followed.weakened = self._followed.weakened, ()
        if not less:
            return
        # 4. on the ConfigMap, or on its namespace
        text = f"the machine-approver's settings ask for less than before: {'; '.join(less)}; the audit log has who changed them"
        for regarding in (self._followed.regarding(), _NAMESPACE):
            if await self._recorder.record(regarding, WEAKENED, text, severity=events.WARNING) is None:
                return

    async def _make(self) -> None:
        # 2. and 3. made where it is missing, where that is allowed, and once there is its namespace
        document = {"metadata": {"name": settings.NAME}, "data": {}}
        try:
            await self._client.create(resources.CONFIG_MAPS, document, namespace=settings.NAMESPACE)
        except status.StatusError as error:
            if error.reason == "NotFound":
                raise loop.NotYet(f"there is no namespace {settings.NAMESPACE}") from None
            if error.reason not in {"Forbidden", "AlreadyExists"}:
                raise


def follow(context: loop.Context, join_within: datetime.timedelta = join_window.DEFAULT) -> Followed:
    """The settings of this process, which all its controllers share."""
    return context.informers.shared(Followed, lambda: Followed(context.informers.get(SOURCE), join_within))
