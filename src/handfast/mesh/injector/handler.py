# SPDX-License-Identifier: Apache-2.0
"""The whole way of a review: from the request of an API server to the answer.

1. POST to `/`: any other path is 404, any other method 405.
2. The body has at most `admission_reviews.MAX_BYTES` bytes (413) and arrives in time (408); all bodies together have a bound, too (429).
3. An empty body is answered with nothing, as Linkerd's injector does.
4. What is no review is 400, with the reason.
5. While there is no plan it is 503. What goes wrong here is 500 or 503 as well: the failure policy of the webhook decides, and nobody is refused
   by accident.
6. The review is judged (`rules.mesh.admission`), and the answer told of (`reports`).

| who | holding | tries | stopped by | shown in tests/unit/mesh/injector/test_handler.py |
|---|---|---|---|---|
| whoever reaches the port | nothing | fill the memory with bodies | 2 | test_a_body_over_the_bound_is_refused_before_it_is_read |
| … | many connections | the same with many bodies that do not end | 2 | test_bodies_have_a_bound_together |
| … | a review of their own | learn more than what every Pod of the mesh shows | 6: anchors, addresses and names, and no key | test_an_answer_holds_no_secret |
| … | made-up owners | fill the cluster with Events | 6: `reports` bounds them | test_events_are_bounded |
| an intruder on the way | a connection to the API server | read or change an answer | TLS 1.3, and the CA bundle in the webhook | test_older_tls_is_refused |
| a fault in here | | have Pods refused that are in order | 5 | test_a_fault_is_no_refusal |

Connections, rates and heads are bounded by `serving`. The API server shows no certificate unless it is set to, so that everybody is answered.
"""

from __future__ import annotations

from typing import Final

from handfast import errors
from handfast.api import status
from handfast.mesh.injector import reports as reports_module
from handfast.mesh.injector import surroundings as surroundings_module
from handfast.rules.mesh import admission, webhook
from handfast.rules.mesh import admission_reviews as reviews
from handfast.serving import answers, bodies, service

NOT_READY: Final = "NotReady"
BODY_SECONDS: Final = 10.0
# All bodies that are on their way.
_MOST_HELD: Final = 64 << 20
_require: Final = bodies.at_most(reviews.MAX_BYTES)


class Handler:
    """Answers for one injector."""

    def __init__(self, around: surroundings_module.Surroundings, reports: reports_module.Reports) -> None:
        self._around = around
        self._reports = reports
        self._held = 0

    async def answer(self, http: service.Request) -> answers.Answer:
        """One request."""
        # 1. where reviews are sent
        if http.path != webhook.PATH:
            return answers.refusal(404, "")
        if http.method != "POST":
            return answers.refusal(405, "")
        try:
            body = await self._body(http)
            # 3. nothing for nothing
            if not body:
                return answers.text(200, "")
            return await self._reviewed(body)
        except reviews.BadReview as bad:
            # 4. no review
            self._reports.failed(bad.reason)
            return answers.text(400, f"{bad.message} ({bad.reason})\n")
        except errors.HandfastError as error:
            # 5. not a no
            self._reports.failed(error.reason)
            raise
        except Exception:
            self._reports.failed("InternalError")
            raise

    async def _reviewed(self, body: bytes) -> answers.Answer:
        review = reviews.read(body)
        plan = self._around.plan
        # 5. nothing to judge by
        if plan is None:
            raise errors.Unavailable(f"the injector is not ready: {self._around.why_not}", reason=NOT_READY)
        verdict = admission.judge(review, plan, await self._around.around(review, plan))
        # 6. told, and answered
        self._reports.note(review, verdict)
        return answers.Answer(reviews.written(review, verdict.answer))

    async def _body(self, http: service.Request) -> bytes:
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            # 2. all of them together
            if self._held + size > _MOST_HELD:
                raise status.StatusError("TooManyRequests", "too many bodies are on their way", retry_after=1)
            self._held += size
            taken += size

        try:
            return await bodies.read(http, BODY_SECONDS, _require, take)
        finally:
            self._held -= taken
