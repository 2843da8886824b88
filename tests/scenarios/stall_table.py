# SPDX-License-Identifier: Apache-2.0
"""The table of stalls, longest first: `python -m tests.scenarios.stall_table [words of names] [--profile]`.

It judges nothing: that is `test_request_cost`.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

from tests.scenarios import costly_requests, request_forms, request_shapes
from tests.world import stalls


def attacks(words: list[str], chosen: str, there: stalls.Worlds) -> list[stalls.Attack]:
    if chosen == "named":
        return [attack for attack in costly_requests.NAMED if all(word in attack.name for word in words)]
    if chosen in {"forms", "lists"}:
        if chosen == "lists":
            request_forms.populate(there.server)
        makers = [request_forms.lists] if chosen == "lists" else list(request_forms.FORMS.values())
        return [attack for make in makers for attack in make() if all(word in attack.name for word in words)]
    rights = request_shapes.Rights(there.server)
    found = [case for case in request_shapes.cases(rights) if all(word in case.name for word in words)]
    if chosen == "fields":
        found = request_shapes.every_field_once(found)
    elif chosen == "union":
        found = request_shapes.union(found)
    elif chosen != "all":
        found = request_shapes.sample(found, int(chosen))
    return [case.attack() for case in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only attacks whose name has all of these in it")
    parser.add_argument("--which", default="named", help="named, forms, lists, union, fields, all, or a number")
    parser.add_argument("--profile", action="store_true", help="say which functions the time went to")
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--above", type=float, default=0.0, help="print only stalls above so many ms as they are found")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        stalls.worlds(pathlib.Path(directory), profile=given.profile) as there,
    ):
        chosen = attacks(given.words, given.which, there)
        print(f"{len(chosen)} attacks, calibration {stalls.calibrate():.2f}")
        if given.list:
            print(*(attack.name for attack in chosen), sep="\n")
            return
        print(stalls.TITLE, flush=True)
        rows = []
        for attack in chosen:
            if given.profile:
                there.server.profile()
            found = there.measure(attack, tries=given.tries)
            rows.append(found)
            if found.held * 1000 >= given.above:
                print(found, flush=True)
                print("          ", found.message[:160])
                if given.profile and found.code:
                    print(there.server.profile(), flush=True)
    print("\nlongest first")
    print(stalls.TITLE)
    for row in sorted(rows, key=lambda row: -row.held):
        print(row)


if __name__ == "__main__":
    main()
