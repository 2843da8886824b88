# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh explain`: may one workload call another, every check, and what would turn the verdict. It decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from handfast.cli import connecting, mesh_options, output, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from handfast.rules.mesh import ends as ends_module
    from handfast.rules.mesh import explanation

_MARKS: Final = {True: "ok", False: "fails", None: "-"}


@click.command(name="explain", short_help="Say whether one workload may call another, and why.")
@click.argument("caller", metavar="FROM")
@click.argument("called", metavar="TO[:PORT]")
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def explain(
    ctx: click.Context, caller: str, called: str, namespace: str, kubeconfig: str | None, directory: str, form: str
) -> int:
    """Say whether one workload may call another: names, certificates, discovery, revocation and policy, each check in order.

    FROM is an account, NS/NAME or sa/NS/NAME, a Pod, pod/NS/NAME, or none for a client outside the mesh. TO is a Service,
    NS/NAME or svc/NS/NAME, a Pod, pod/NS/NAME, or an account, sa/NS/NAME. PORT is that of the Service, or of the Pod; a
    Service with one port needs none.

    The smallest change that turns the verdict comes then, and what agents have seen of such calls last. The exit code is 0 if the call is allowed, and 1 if it is refused.
    """
    import asyncio

    from handfast.client import mesh_explanation
    from handfast.rules import decision
    from handfast.rules.mesh import edges, ends
    from handfast.rules.mesh import explanation as explanation_module
    from handfast.runtime import clock

    first, second = _typed(ends.client, caller), _typed(ends.server, called)
    now = clock.SystemClock().now()

    async def work(path: str) -> explanation.Facts:
        async with connecting.connected(path) as reached:
            return await mesh_explanation.look(reached.client, first, second, namespace, now)

    facts = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    answer = explanation_module.explain(facts)
    allowed = isinstance(answer.verdict, decision.Approve)
    for each in sorted(facts.unread):
        output.note(f"not everything could be read: {each}")
    if form != "text":
        checks = [mesh_explanation.as_row(check) for check in answer.checks]
        verdict = {"from": str(first), "to": str(second), "allowed": allowed, "why": answer.verdict.sentence}
        observed = [edges.sentence(edge) for edge in answer.observed]
        more = {"checks": checks, "changes": list(answer.changes), "observed": observed}
        output.result(output.document({**verdict, **more}, form))
    else:
        _show(answer)
    return output.Code.DONE if allowed else output.Code.FAILED


def _typed(read: Callable[[str], ends_module.End], text: str) -> ends_module.End:
    from handfast.rules.mesh import ends

    try:
        return read(text)
    except ends.BadEnd as bad:
        raise output.Usage(bad.message, reason=bad.reason, hint=bad.hint) from None


def _show(answer: explanation.Explanation) -> None:
    from handfast.rules.mesh import edges

    rows = [(check.name, _MARKS[check.passed], output.printable(check.sentence)) for check in answer.checks]
    output.result(tables.table(("CHECK", "RESULT", "SEEN"), rows))
    output.result(f"\n{output.printable(answer.verdict.sentence)}")
    for change in answer.changes:
        output.result(f"to change that: {output.printable(change)}")
    for edge in answer.observed:
        output.result(f"observed: {output.printable(edges.sentence(edge))}")
