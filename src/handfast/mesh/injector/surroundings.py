# SPDX-License-Identifier: Apache-2.0
"""What is known beside a review: the plan of the moment, the annotations of namespaces, and the UIDs of accounts.

1. Settings and anchors are judged before they are used. What is not good changes nothing: the plan before stays, and the log says what is wrong.
   What was never good leaves no plan: reviews are then not answered, and the failure policy of the webhook decides.
2. Namespaces are followed. One that is not known is asked for: it may have been made a moment ago, with the Pod.
3. The UID of an account is asked for each time, and only where names have it: a copy could be that of an account that is gone, and
   the Pod would never get its certificate.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, resources
from handfast.client import api, cache, watch
from handfast.mesh import installed as installed_module
from handfast.rules.mesh import admission, control_plane, installation, issuer, names, settings, sidecar, views
from handfast.rules.mesh import admission_reviews as reviews

_log = structlog.get_logger("handfast.mesh.injector")
_NAMESPACES: Final = watch.Source(resource=resources.NAMESPACES, view=views.Named)
_named: Final = msgspec.json.Decoder(views.Named)


class Surroundings:
    """Follows the installation and the namespaces, from when the informers start."""

    def __init__(self, client: api.Client, informers: cache.Informers, namespace: str, created_by: str) -> None:
        self._client = client
        self._created_by = created_by
        self.namespace = namespace
        self.why_not = "nothing was read yet"
        self._plan: sidecar.Plan | None = None
        self._said = ""
        self._namespaces = informers.get(_NAMESPACES)
        # The accounts of the control plane, whose names workloads are told.
        scope = api.Scope(namespace=namespace)
        self._accounts = informers.get(watch.Source(resource=resources.SERVICE_ACCOUNTS, view=views.Named, scope=scope))
        self._accounts.subscribe(lambda _old, _new: self._look())
        self._installed = installed_module.Installed(informers, namespace, self._look)

    @property
    def plan(self) -> sidecar.Plan | None:
        """By what Pods are injected now; None where nothing was good so far (1)."""
        return self._plan

    def settings(self) -> settings.Settings | None:
        """The settings of the moment."""
        return None if self._plan is None else self._plan.settings

    def not_ready(self) -> str | None:
        """Why no review can be answered well, in words for a readiness check."""
        if self._plan is None:
            return self.why_not
        return None if self._namespaces.synced else "not synced: namespaces"

    def knows(self, namespace: str) -> bool:
        """Whether there is such a namespace, as far as is known."""
        return self._namespaces.get("", namespace) is not None

    async def around(self, review: reviews.Review, plan: sidecar.Plan) -> admission.Around:
        """What is known beside a review."""
        uid = await self._uid(review, plan)
        return admission.Around(annotations=await self._annotations(review.namespace), uid=uid)

    async def _annotations(self, name: str) -> dict[str, str]:
        # 2. a copy, or a look
        view = self._namespaces.get("", name)
        if view is None and name:
            with api.MISSING_OK:
                view = await self._client.view(resources.NAMESPACES, name, _named)
        return {} if view is None else view.metadata.annotations or {}

    async def _uid(self, review: reviews.Review, plan: sidecar.Plan) -> str:
        account = admission.account(review)
        if not account or plan.settings.scheme is not names.Scheme.UID:
            return ""
        # 3. as it is now
        with api.MISSING_OK:
            document = await self._client.get(resources.SERVICE_ACCOUNTS, account, namespace=review.namespace)
            return jsonpath.text(document, "metadata", "uid")
        return ""

    def _look(self) -> None:
        try:
            plan = self._judged()
        except errors.Refused as refused:
            # 1. what was used before stays
            if self._plan is None:
                self.why_not = refused.message
            if self._installed.answered and refused.message != self._said:
                self._said = refused.message
                _log.warning("the stored settings are not used", reason=refused.reason, error=refused.message)
            return
        self._said = self.why_not = ""
        if plan != self._plan:
            self._plan = plan
            _log.info("Pods are injected by these settings", trust_domain=plan.settings.trust_domain)

    def _judged(self) -> sidecar.Plan:
        chosen = settings.parse(self._installed.need(control_plane.CONFIG).data or {})
        stored = self._installed.need(control_plane.TRUST_ANCHOR)
        anchors = issuer.read_anchors(installation.read_anchors(stored.document))
        # A namespace that is no label is refused here, and not for each Pod.
        return sidecar.Plan(
            settings=chosen,
            anchors=anchors.to_pem().decode(),
            created_by=self._created_by,
            namespace=self.namespace,
            uids={item.metadata.name: item.metadata.uid for item in self._accounts},
        )
