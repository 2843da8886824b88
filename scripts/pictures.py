# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documentation: `python scripts/pictures.py` writes docs/pictures/*.svg. A test compares.

They are SVG, so that they stay sharp and their words can be found. Each follows the reader's light or dark theme by its own style sheet,
has a title and a description for those who do not see it, and loads nothing.
"""

from __future__ import annotations

import html
import pathlib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

PLACE: Final = pathlib.Path(__file__).parent.parent / "docs" / "pictures"
STYLE: Final = """
.page{fill:#fff}.box{fill:#f4f6fb;stroke:#a9b4d0}.strong{fill:#e6ebfb;stroke:#3f51b5}.line{stroke:#5b6680;fill:none}
.life{stroke:#c3cad9;stroke-dasharray:3 4}.head{fill:#5b6680}text{font:13px system-ui,sans-serif;fill:#1c2333}
.name{font-weight:600;font-size:14px}.small{fill:#4a556e;font-size:12px}.said{paint-order:stroke;stroke:#fff;stroke-width:4px}.own{stroke:none}
@media(prefers-color-scheme:dark){.page{fill:#12161e}.box{fill:#1b212c;stroke:#46526b}.strong{fill:#232c4d;stroke:#9fb0ff}
.line{stroke:#9aa6bf}.life{stroke:#39445a}.head{fill:#9aa6bf}text{fill:#e6eaf2}.small{fill:#aab4c8}.said{stroke:#12161e}.own{stroke:none}}
"""
WIDTH: Final = 860
HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the whole: where it is, what it is called, and what it does, a line each."""

    x: int
    y: int
    width: int
    name: str
    lines: tuple[str, ...]
    kind: str = "box"

    @property
    def height(self) -> int:
        return 34 + 18 * len(self.lines)


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one point to another, with a word beside its middle."""

    start: tuple[int, int]
    end: tuple[int, int]
    label: str = ""
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a story: who tells whom what; where both are the same, what they do for themselves."""

    teller: int
    hearer: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Story:
    """Some actors, and what happens between them, from top to bottom."""

    title: str
    description: str
    actors: tuple[str, ...]
    steps: tuple[Step, ...]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{html.escape(words)}</text>'


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (left, top), (right, bottom) = start, end
    return f'<path class="line" marker-end="url(#head)" d="M{left:g} {top:g} L{right:g} {bottom:g}"/>'


def document(title: str, description: str, height: int, parts: Sequence[str]) -> str:
    """The whole file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title description">',
        f'<title id="title">{html.escape(title)}</title>',
        f'<desc id="description">{html.escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        HEAD,
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="10"/>',
    )
    return "\n".join((*head, *parts, "</svg>")) + "\n"


def box(part: Box) -> Iterator[str]:
    yield f'<rect class="{part.kind}" x="{part.x}" y="{part.y}" width="{part.width}" height="{part.height}" rx="7"/>'
    yield text(part.x + 12, part.y + 22, part.name, "name")
    for row, words in enumerate(part.lines):
        yield text(part.x + 12, part.y + 42 + 18 * row, words, "small")


def labelled(line: Arrow) -> Iterator[str]:
    yield arrow(line.start, line.end)
    if line.label:
        aside = 8 if line.anchor == "start" else -8 if line.anchor == "end" else 0
        middle = (line.start[0] + line.end[0]) / 2 + aside
        yield text(
            middle,
            (line.start[1] + line.end[1]) / 2 - (6 if line.anchor == "middle" else -4),
            line.label,
            "small",
            line.anchor,
        )


def told(story: Story) -> str:
    """A story as a sequence of messages between its actors."""
    between = WIDTH // len(story.actors)
    places = [between // 2 + between * column for column in range(len(story.actors))]
    parts: list[str] = []
    y = 74
    for number, step in enumerate(story.steps, 1):
        parts.extend(_step(number, step, places, y, between))
        y += 26 + 17 * len(_wrapped(number, step, between))
    lives = [f'<path class="line life" d="M{place} 46 L{place} {y - 8}"/>' for place in places]
    names = []
    for place, name in zip(places, story.actors, strict=True):
        names.append(f'<rect class="strong" x="{place - 92}" y="14" width="184" height="32" rx="7"/>')
        names.append(text(place, 35, name, "name", "middle"))
    return document(story.title, story.description, y + 8, [*lives, *names, *parts])


def _span(step: Step, between: int) -> int:
    return max(1, abs(step.hearer - step.teller)) * between


def _wrapped(number: int, step: Step, between: int) -> list[str]:
    return textwrap.wrap(f"{number}. {step.sentence}", (_span(step, between) - 40) // 7)


def _step(number: int, step: Step, places: Sequence[int], y: int, between: int) -> Iterator[str]:
    lines, own = _wrapped(number, step, between), step.teller == step.hearer
    if own:
        width = between - 24
        left = places[step.teller] - width // 2
        yield f'<rect class="box" x="{left}" y="{y - 12}" width="{width}" height="{14 + 17 * len(lines)}" rx="7"/>'
        middle = float(places[step.teller])
    else:
        middle = (places[step.teller] + places[step.hearer]) / 2
    for row, words in enumerate(lines):
        yield text(middle, y + 5 + 17 * row, words, "said own" if own else "said", "middle")
    if not own:
        below = y + 12 + 17 * (len(lines) - 1)
        yield arrow((places[step.teller], below), (places[step.hearer], below))


def whole() -> str:
    """What there is, and who talks to whom."""
    boxes = (
        Box(20, 20, 220, "a machine", ("begins with one short secret", "ends with its own certificate")),
        Box(320, 20, 220, "an operator", ("kubectl, handfast, the console", "sees, explains, revokes")),
        Box(620, 20, 220, "a workload", ("begins with its account's token", "ends with its own certificate")),
        Box(20, 150, 220, "node agent", ("joins, renews before the end,", "keeps Node and Lease")),
        Box(620, 150, 220, "proxy: Envoy, an agent", ("mutual TLS between workloads,", "policy by identity")),
        Box(
            290,
            165,
            280,
            "Kubernetes API",
            (
                "Handfast's own, or your cluster's",
                "1 who is asking?  2 may they?",
                "3 may this be written?",
                "4 written down, with the reason",
            ),
            "strong",
        ),
        Box(
            20,
            320,
            250,
            "controllers",
            ("approve and sign requests,", "write the ledger, publish", "cluster-info, follow machines"),
        ),
        Box(
            590,
            320,
            250,
            "services of the mesh",
            ("identity: certificates", "injector: proxies for Pods", "destination, policy: who, where"),
        ),
        Box(320, 335, 220, "store", ("one SQLite file, or etcd", "Secrets sealed")),
        Box(
            20,
            450,
            820,
            "rules: the deciding half",
            ("no I/O, no clock, no log: facts in, a verdict with its reason out; everything above asks it",),
            "strong",
        ),
    )
    arrows = (
        Arrow((130, 90), (130, 150)),
        Arrow((730, 90), (730, 150)),
        Arrow((430, 90), (430, 165)),
        Arrow((240, 190), (290, 205)),
        Arrow((620, 190), (570, 205)),
        Arrow((195, 320), (310, 271)),
        Arrow((665, 320), (550, 271)),
        Arrow((430, 271), (430, 335)),
        Arrow((760, 220), (760, 320)),
    )
    parts = [part for each in boxes for part in box(each)] + [part for each in arrows for part in labelled(each)]
    description = (
        "Machines come in through the node agent, workloads through their proxy, operators through kubectl, handfast and the console. "
        "All of them, and the controllers and the services of the mesh, meet only at the Kubernetes API, which is kept in a store. "
        "What is allowed is decided by rules that do nothing else."
    )
    return document("Handfast as a whole", description, 522, parts)


JOIN: Final = Story(
    "A machine joins",
    "From a token and a pin to a certificate of its own, in ten steps between the machine, the API server and the controllers.",
    ("new machine", "API server", "controllers"),
    (
        Step(2, 1, "publish cluster-info: addresses and CA, signed once for every token"),
        Step(0, 1, "asks for cluster-info; nobody is believed yet"),
        Step(0, 0, "checks the signature with its token, and the CA with its pin"),
        Step(0, 1, "asks once more, now over verified TLS: both texts must be the same"),
        Step(0, 1, "shows the token for the first time, and files its request; the key stays here"),
        Step(1, 1, "counts the use, judges the token's limits, writes down who asked"),
        Step(2, 1, "approve: the rule fits, and the requester has the permission"),
        Step(2, 1, "sign: into the ledger first, then into the request"),
        Step(1, 0, "the certificate, for this one node name"),
        Step(0, 0, "forgets the token; from now on it is authorised as itself alone"),
    ),
)
ROTATION: Final = Story(
    "A certificate is replaced",
    "How a node's agent renews before the end, and why a crash at any step loses nothing.",
    ("node agent", "its disk", "API server", "controllers"),
    (
        Step(0, 0, "at 70 to 90 % of the life, each node at its own moment"),
        Step(0, 1, "a new key, before it is used"),
        Step(0, 2, "files a request with the certificate that it has; its name is made from the key"),
        Step(3, 2, "approve: a node asks for its own name"),
        Step(3, 2, "sign: ledger first, then the request"),
        Step(2, 0, "the certificate; it is compared with what was asked for"),
        Step(0, 1, "the new pair; one rename of a link makes it current"),
        Step(0, 2, "connections with the old certificate end, new ones show the new"),
        Step(0, 0, "killed on the way? The key on disk leads back to the same request"),
    ),
)
MESH: Final = Story(
    "Two workloads, and both know who the other is",
    "A proxy gets a certificate in the name of its service account, finds an endpoint with its identity, and speaks mutual TLS to it.",
    ("workload and proxy", "services of the mesh", "API server", "the other's proxy"),
    (
        Step(1, 2, "injector: every new Pod gets a proxy"),
        Step(0, 1, "identity: the account's token, and a request signed by a key of its own"),
        Step(1, 2, "whose token is it? is it revoked? into the ledger"),
        Step(1, 0, "a certificate for one day, renewed by itself"),
        Step(0, 1, "destination: where is web.shop, and which identity has it?"),
        Step(1, 0, "an address, and the exact name to expect there"),
        Step(0, 3, "TLS 1.3: each side shows its certificate, and checks the other's name"),
        Step(3, 3, "may this identity call this port? the policy decides, for each request"),
        Step(1, 3, "an identity is revoked: within a second, also on open connections"),
    ),
)


def drawn() -> dict[str, str]:
    """Every picture by the name of its file."""
    stories = {"join.svg": JOIN, "rotation.svg": ROTATION, "mesh.svg": MESH}
    return {"whole.svg": whole()} | {name: told(story) for name, story in stories.items()}


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    for name, content in drawn().items():
        (PLACE / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
