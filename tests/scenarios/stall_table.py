# SPDX-License-Identifier: Apache-2.0
"""The table of stalls, longest first: `python -m tests.scenarios.stall_table [words of names] [--profile]`.

It judges nothing: that is `test_request_cost`.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

from tests.scenarios import costly_requests
from tests.world import stalls


def attacks(words: list[str], chosen: str) -> list[stalls.Attack]:
    found = list(costly_requests.NAMED) if chosen == "named" else []
    return [attack for attack in found if all(word in attack.name for word in words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only attacks whose name has all of these in it")
    parser.add_argument("--which", default="named")
    parser.add_argument("--profile", action="store_true", help="say which functions the time went to")
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    rows = []
    chosen = attacks(given.words, given.which)
    if given.list:
        print(*(attack.name for attack in chosen), sep="\n")
        return
    print(f"calibration {stalls.calibrate():.2f}")
    print(stalls.TITLE, flush=True)
    with tempfile.TemporaryDirectory() as directory, stalls.worlds(pathlib.Path(directory), profile=given.profile) as there:
        for attack in chosen:
            if given.profile:
                there.server.profile()
            found = there.measure(attack, tries=given.tries)
            rows.append(found)
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
