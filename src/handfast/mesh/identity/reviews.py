# SPDX-License-Identifier: Apache-2.0
"""Has the API server review a workload's token. What its answer means, `rules.mesh.certify` says.

1. It is reviewed for the audience of the identity service.
2. A second time, for the API's own audience, only where that is accepted by setting, and only where the first said no.
3. An API server that has no time is not an error of the token: who asks is told to come again.
"""

from __future__ import annotations

from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, kinds, status
from handfast.client import api
from handfast.rules.mesh import certify, control_plane
from handfast.rules.mesh import names as mesh_names

_REVIEWS: Final = kinds.row("tokenreviews", "authentication.k8s.io")
_HEAD: Final = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind}


class Reviews:
    """Reviews by one API server."""

    def __init__(self, client: api.Client) -> None:
        self._client = client

    async def review(self, call: certify.Call, mesh: mesh_names.Mesh, *, accept_api: bool) -> certify.Reviewed:
        """Whose token it is; certify.Refusal where it is not good."""
        # Octets that are no text are no token: the API server says so.
        token = call.token.decode("utf-8", "replace")
        # 1. for this service
        answer = await self._ask(call.identity, {"token": token, "audiences": [control_plane.AUDIENCE]})
        # 2. for the API, where that is accepted
        if accept_api and jsonpath.at(answer, "authenticated") is not True:
            return certify.reviewed(await self._ask(call.identity, {"token": token}), mesh, call.identity, "")
        return certify.reviewed(answer, mesh, call.identity)

    async def _ask(self, identity: str, spec: dict[str, Any]) -> Any:
        try:
            answer = await self._client.create(_REVIEWS, {**_HEAD, "spec": spec})
        except status.StatusError as error:
            # 3. the server has no time
            if error.reason == "TooManyRequests":
                raise certify.Refusal(certify.RESOURCE_EXHAUSTED, error.message, "ReviewsExhausted") from None
            raise certify.review_failed(identity, error.message) from None
        except (errors.Refused, errors.Unavailable) as error:
            raise certify.review_failed(identity, error.message) from None
        return answer.get("status") or {}
