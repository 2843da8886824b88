# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.report [FILE]`: the table of docs/reference/performance.md, from a file of results.

It measures nothing; without FILE it reads results/reference.json.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

_REFERENCE = pathlib.Path(__file__).parent / "results" / "reference.json"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def row(figure: Mapping[str, Any]) -> str:
    title = f"… {figure['title'].strip()}" if figure["title"].startswith(" ") else figure["title"]
    spread = f"{_number(figure['min'])} – {_number(figure['max'])}" if len(figure["rounds"]) > 1 else ""
    limit = ""
    if "limit" in figure:
        limit = f"{figure['limit']:g}" if figure["passed"] else f"{figure['limit']:g}, **over**"
    return f"| {title} | {_number(figure['median'])} {figure['unit']} | {spread} | {limit} |"


def main(path: pathlib.Path) -> None:
    document = json.loads(path.read_text())
    print("| figure | median | min – max | limit |\n|---|---|---|---|")
    for figure in document["figures"]:
        print(row(figure))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else _REFERENCE)
