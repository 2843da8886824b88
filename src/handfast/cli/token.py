# SPDX-License-Identifier: Apache-2.0
"""`handfast token`: create, list, delete, generate and explain bootstrap tokens. It prints; the work is in `client.tokens`.

Every word is checked before the API is asked. The secret half of a token is printed by `create`, `list` and `generate`,
which is what they are for, and by nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import candidates, connecting, output, tables, token_input

if TYPE_CHECKING:
    import datetime

    from handfast.api import objects
    from handfast.bootstrap import token_explanation, token_limits, token_views, tokens

_LIST_FORMATS: Final = ("text", "wide", "json", "yaml", "name")
_MINOR: Final = ("EXTRA GROUPS", "LAST USE", "FROM", "NODES", "USAGES", "DESCRIPTION")
# The same as in `bootstrap.tokens`, which is imported only where it is needed. A test compares them.
_MAX_DESCRIPTION: Final = 256
_RESULTS: Final = {True: "ok", False: "fails", None: "depends"}


@click.group(name="token", short_help="Create, list, delete and explain bootstrap tokens.")
def command() -> None:
    """Create, list, delete and explain bootstrap tokens, with which machines find the cluster and join it."""


@command.command(short_help="Create a token on the server.")
@click.argument("token", required=False)
@click.option("--token-file", type=click.Path(), default=None, help="A file with the token; - is standard input.")
@click.option(
    "--usages",
    metavar="NAME,…",
    multiple=True,
    default=("signing,authentication",),
    show_default=True,
    help="What it is for: signing lets machines verify the cluster with it, authentication lets them log in.",
)
@click.option(
    "--ttl",
    metavar="DURATION",
    default=token_input.DEFAULT_TTL,
    show_default=True,
    help="How long it lives, as in 90m, 24h or 7d; 0 is for ever.",
)
@click.option("--description", default="", help=f"What it is for, for people; at most {_MAX_DESCRIPTION} characters.")
@click.option(
    "--groups",
    metavar="NAME,…",
    multiple=True,
    help="Extra groups of whoever logs in with it.  [default: system:bootstrappers:kubeadm:default-node-token]",
)
@click.option("--print-join-command", is_flag=True, help="Print the whole command for the machine that is to join.")
@click.option("--max-uses", metavar="COUNT", default=None, help="How many machines may join with it.")
@click.option("--node", metavar="NAME|GLOB", multiple=True, help="Which nodes may join with it, as in worker-*.")
@click.option("--cidr", metavar="NETWORK", multiple=True, help="From where it may be used, as in 10.0.0.0/8.")
@connecting.options
@output.format_option
@click.pass_context
def create(ctx: click.Context, /, kubeconfig: str | None, directory: str, form: str, **flags: Any) -> None:
    """Create a token on the server, and print it.

    TOKEN has the form abcdef.0123456789abcdef; without it a random one is made. With - it is read from standard input:
    everyone on this machine can read the arguments of a command.
    """
    import asyncio

    from handfast.api import objects
    from handfast.bootstrap import token_limits, token_views
    from handfast.runtime import clock

    document = _document(flags, clock.SystemClock().now())
    command_line = asyncio.run(
        _create(connecting.chosen(ctx, kubeconfig, directory), document, join=flags["print_join_command"])
    )
    view = token_views.view(document)
    if form != "text":
        found = token_views.document(view) | ({"joinCommand": command_line} if command_line else {})
        output.result(token_views.documents([found], form))
    else:
        output.result(command_line or view.token.text)
    # Whoever passes it on should know what it is worth. A script is warned only of a token that never expires.
    if "authentication" in view.usages and (view.expires is None or output.to_terminal()):
        limited = view.limits != token_limits.Limits()
        until = "" if view.expires is None else objects.timestamp(view.expires)
        output.warn(token_input.holder_warning(view.token.id, until, limited=limited))


def _document(flags: dict[str, Any], now: datetime.datetime) -> objects.Document:
    """The Secret to create. Whatever is wrong with the flags is refused here."""
    import secrets

    from handfast.bootstrap import first_objects, token_limits, tokens

    usages, groups = _items(flags["usages"]), _items(flags["groups"])
    if not usages:
        raise output.Usage(
            '--usages: the value "" is empty: nobody could use such a token',
            hint=f"allowed: {' and '.join(tokens.USAGES)}, or one of them",
            reason="BadBootstrapUsage",
        )
    ttl = token_input.parse_ttl(flags["ttl"], "--ttl")
    token = _named(flags["token"], flags["token_file"])
    if tokens.AUTHENTICATION not in usages:
        if groups:
            raise output.Usage('token groups cannot be specified unless --usages includes "authentication"')
    elif not groups:
        groups = [first_objects.NODE_GROUP]
    try:
        limits = _limits(flags["max_uses"], flags["node"], flags["cidr"])
        document = tokens.secret_document(
            token or tokens.generate(secrets.token_bytes),
            expiration=token_input.instant_after(now, ttl),
            usages=usages,
            groups=groups,
            description=flags["description"],
        )
    except errors.Refused as refused:
        raise output.Usage(refused.message, reason=refused.reason, hint=refused.hint) from None
    if annotations := token_limits.as_annotations(limits):
        document["metadata"]["annotations"] = annotations
    return document


def _items(texts: Iterable[str]) -> list[str]:
    """A list, written with commas or by repeating its flag; each item once."""
    return list(dict.fromkeys(item for text in texts for item in text.split(",") if item))


def _named(argument: str | None, file: str | None) -> tokens.Token | None:
    """The token that was typed, or is in the file; None for a random one."""
    if argument is not None and file is not None:
        raise output.Usage("a token and --token-file do not go together")
    if file is not None:
        return token_input.parse(token_input.read_file(file, "--token-file"), "--token-file")
    if argument is None:
        return None
    return token_input.parse(_whole(argument), "token")


def _whole(argument: str) -> str:
    return token_input.read_file(token_input.STDIN, "token") if argument == token_input.STDIN else argument


def _limits(max_uses: str | None, nodes: Sequence[str], cidrs: Sequence[str]) -> token_limits.Limits:
    from handfast.bootstrap import token_limits

    return token_limits.Limits(
        max_uses=None if max_uses is None else token_limits.parse_max_uses(max_uses, "--max-uses"),
        nodes=token_limits.parse_nodes(",".join(nodes), "--node") if nodes else (),
        cidrs=token_limits.parse_cidrs(",".join(cidrs), "--cidr") if cidrs else (),
    )


async def _create(kubeconfig: str, document: objects.Document, *, join: bool) -> str:
    """Create the token; the join command for it, if that was asked for."""
    from handfast.bootstrap import token_limits, token_views
    from handfast.client import tokens as over_api

    async with connecting.connected(kubeconfig) as reached:
        pinned: tuple[str, ...] = ()
        cluster = None
        if join:
            # What may be missing is read first. Else a token would be created that nobody is shown.
            cluster = await over_api.known_cluster(reached.client, reached.connection)
            pinned = over_api.ca_pins(cluster.ca)
        limited = "annotations" in document["metadata"]
        if limited and not await over_api.enforces_limits(reached.client):
            output.warn(token_limits.warning())
        await over_api.create(reached.client, document)
    if cluster is None:
        return ""
    if alone := token_input.only_here(cluster.servers):
        output.note(alone)
    return token_views.join_command(cluster.servers, token_views.view(document).token, pinned)


@command.command(name="list", short_help="List the tokens on the server.")
@connecting.options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_LIST_FORMATS),
    default="text",
    show_default=True,
    help="How they are written: wide adds limits and uses, name has the ids alone.",
    callback=output.remember_format,
)
@click.pass_context
def list_command(ctx: click.Context, kubeconfig: str | None, directory: str, form: str) -> None:
    """List the tokens on the server, with their secrets."""
    import asyncio

    from handfast.bootstrap import token_views
    from handfast.runtime import clock

    views = []
    documents = asyncio.run(_list(connecting.chosen(ctx, kubeconfig, directory)))
    for document in documents:
        try:
            views.append(token_views.view(document))
        except errors.Refused as refused:
            output.note(refused.message)
    if not documents:
        output.note("there are no bootstrap tokens")
    if not views:
        return
    if form == "name":
        output.result("\n".join(view.token.id for view in views))
    elif form in {"text", "wide"}:
        output.result(_table(views, clock.SystemClock().now(), wide=form == "wide"))
    else:
        output.result(token_views.documents(map(token_views.document, views), form))


def _table(views: Sequence[token_views.View], now: datetime.datetime, *, wide: bool) -> str:
    """As kubeadm prints it; on a terminal that is too narrow for that, less of it."""
    from handfast.bootstrap import token_views

    whole = token_views.table(views, now, wide=wide)
    room = tables.room()
    if room is None or max(map(len, whole.splitlines())) <= room:
        return whole
    columns = token_views.WIDE_COLUMNS if wide else token_views.COLUMNS
    return tables.table(columns, token_views.rows(views, now, wide=wide), minor=_MINOR)


async def _list(kubeconfig: str) -> Sequence[objects.Document]:
    async with connecting.connected(kubeconfig) as reached:
        from handfast.client import tokens as over_api

        return await over_api.listed(reached.client)


@command.command(short_help="Delete tokens on the server.")
@click.argument("which", metavar="ID|TOKEN...", nargs=-1, shell_complete=candidates.tokens)
@connecting.options
@output.format_option
@click.pass_context
def delete(ctx: click.Context, which: Sequence[str], kubeconfig: str | None, directory: str, form: str) -> None:
    """Delete tokens on the server. Name each by its id; of a whole token only the id counts.

    From then on nobody can log in with them. A token that is not there is no error.
    """
    import asyncio

    if not which:
        raise output.Usage(
            "missing argument 'ID|TOKEN...'", hint="`handfast token list -o name` shows the ids of the tokens there are"
        )
    ids = list(dict.fromkeys(_id(word) for word in which))
    deleted = asyncio.run(_delete(connecting.chosen(ctx, kubeconfig, directory), ids))
    if form != "text":
        missing = [each for each in ids if each not in deleted]
        output.result(output.document({"deleted": deleted, "missing": missing}, form))
        return
    for each in ids:
        outcome = "deleted" if each in deleted else "is not there"
        output.result(f"bootstrap token {json.dumps(each)} {outcome}")


def _id(word: str) -> str:
    """The id in an id or a token; the rest is not repeated, since it may be a secret."""
    from handfast.bootstrap import tokens

    head, dot, _ = word.partition(".")
    text = word if dot else f"{head}.{'0' * 16}"
    if not tokens.is_well_formed(text):
        raise output.Usage(
            "a token or id that was given is not well formed",
            reason="BadBootstrapToken",
            hint=f"{tokens.TOKEN_FORM}; its id is the first six",
        )
    return head


async def _delete(kubeconfig: str, ids: Sequence[str]) -> list[str]:
    async with connecting.connected(kubeconfig) as reached:
        from handfast.client import tokens as over_api

        return [each for each in ids if await over_api.delete(reached.client, each)]


@command.command(short_help="Print a random token, and create nothing.")
@output.format_option
def generate(form: str) -> None:
    """Print a random token that `create`, `init` and `up` accept. No server is asked, and nothing is created."""
    import secrets

    from handfast.bootstrap import tokens

    made = tokens.generate(secrets.token_bytes).text
    output.result(made if form == "text" else output.document({"token": made}, form))


@command.command(short_help="Say why a token works, or does not.")
@click.argument("which", metavar="ID|TOKEN", shell_complete=candidates.tokens)
@connecting.options
@output.format_option
@click.pass_context
def explain(ctx: click.Context, which: str, kubeconfig: str | None, directory: str, form: str) -> int:
    """Say why a token works, or does not: every check with its result, and who has used it.

    With a whole token, or - to read one from standard input, its secret half is compared as well. The exit code is 1
    where there is no such token.
    """
    import asyncio

    from handfast.bootstrap import token_views, tokens

    word = _whole(which)
    token_id = _id(word)
    presented = tokens.parse(word) if "." in word else None
    path = connecting.chosen(ctx, kubeconfig, directory)
    document, explanation = asyncio.run(_explain(path, token_id, presented))
    uses = _uses(document)
    if form != "text":
        rows = [{"check": row.check, "ok": row.good, "detail": row.sentence} for row in explanation.findings]
        facts = {"id": token_id, "checks": rows, "uses": [token_views.use_document(use) for use in uses]}
        verdicts = {
            "discovery": explanation.discovery,
            "authentication": explanation.authentication,
            "joining": explanation.joining,
        }
        output.result(output.document({**facts, **verdicts}, form))
        return _exit_code(document)
    lines = [(row.check, _RESULTS[row.good], row.sentence) for row in explanation.findings]
    output.result(tables.table(("CHECK", "RESULT", "DETAIL"), lines))
    if uses:
        rows_of_uses = [tuple(token_views.use_document(use).values()) for use in uses]
        output.result("\n" + tables.table(("USED AT", "NODE", "KEY", "FROM"), rows_of_uses, minor=("KEY",)))
    output.result(
        f"\ncan a machine verify the cluster with it?  {'yes' if explanation.discovery else 'no'}\n"
        f"can a machine log in with it?              {'yes' if explanation.authentication else 'no'}\n"
        f"can a new machine join with it?            {_joining(explanation)}"
    )
    return _exit_code(document)


def _exit_code(document: objects.Document | None) -> output.Code:
    """The exit code: a token that is not there is a failure, as for every command."""
    return output.Code.FAILED if document is None else output.Code.DONE


def _joining(explanation: token_explanation.Explanation) -> str:
    if explanation.joining is None:
        open_ = [row.check for row in explanation.findings if row.good is None]
        return f"it depends: see {' and '.join(open_)}"
    return "yes" if explanation.joining else "no"


def _uses(document: objects.Document | None) -> Sequence[token_limits.Use]:
    from handfast.bootstrap import token_limits

    try:
        return token_limits.uses(document)
    except errors.Refused:
        # The check of uses says what is wrong with them.
        return ()


async def _explain(
    kubeconfig: str, token_id: str, presented: tokens.Token | None
) -> tuple[objects.Document | None, token_explanation.Explanation]:
    import datetime

    from handfast.bootstrap import token_explanation
    from handfast.client import tokens as over_api
    from handfast.runtime import clock

    here = clock.SystemClock()
    async with connecting.connected(kubeconfig) as reached:
        document = await over_api.find(reached.client, token_id)
        ahead = await over_api.clock_difference(reached.connection, here)
    now = here.now() + (ahead or datetime.timedelta())
    return document, token_explanation.explain(token_id, document, now, ahead=ahead, presented=presented)
