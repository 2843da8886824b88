# SPDX-License-Identifier: Apache-2.0
"""Why the API server gave no answer, in the words of `bootstrap.diagnosis`, and none of a library's. It asks nobody."""

from __future__ import annotations

from handfast import errors
from handfast.bootstrap import diagnosis
from handfast.client import transport, trouble


class Explaining:
    """What a transport asks when there was no answer; `last` is what was said last."""

    def __init__(self, kubeconfig: str) -> None:
        self._by = f"a CA of {kubeconfig}"
        self.last: errors.HandfastError | None = None

    async def __call__(self, server: str, met: trouble.Troubled) -> errors.HandfastError:
        self.last = diagnosis.explain(met.trouble, server, met.detail, None, by=self._by)
        if self.last.reason not in transport.NOT_BELIEVED:
            # Whoever follows something logs these two reasons once, and not for every watch.
            reason = "Timeout" if met.trouble is diagnosis.Trouble.NO_ANSWER else "Unreachable"
            self.last = errors.Unavailable(self.last.message, reason=reason, hint=self.last.hint)
        return self.last
