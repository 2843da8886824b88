# SPDX-License-Identifier: Apache-2.0
"""The Ledger page: rows the newest first, searches that stay within bounds, chains verified, and lines that no rule can read."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast.api import signer_names
from handfast.rules.console import ledger, ledger_index
from handfast.rules.ledger import segments, verification
from tests.unit.rules.console import ledgers

NOW = ledgers.NOW
NOTHING = ledger.Search()


def kept(*made: segments.Segment) -> ledger.Ledger:
    found = ledger.Ledger()
    for segment in made:
        found.put(segment)
    return found


def three() -> list[segments.Segment]:
    return ledgers.chain(
        [ledgers.entry("a", age=9), ledgers.entry("b", age=8)],
        [ledgers.entry("c", age=7, token_id="zzzzzz", rule="MachineJoin: ns/m-1"), ledgers.entry("d", age=6)],
        [ledgers.entry("e", age=5)],
    )


def found(page: ledger.Page) -> list[str]:
    return [row.entry.request.removeprefix("csr-") if row.entry else "?" for row in page.rows]


def test_rows_are_the_newest_first_and_come_in_ranges():
    book = kept(*three())
    assert len(book) == 5
    assert book.segment_count == 3
    assert list(book.names()) == [kept.name for kept in book.kept()] == [segment.name for segment in three()]
    assert found(book.page(NOTHING, 0, 100)) == ["e", "d", "c", "b", "a"]
    assert found(book.page(NOTHING, 1, 2)) == ["d", "c"]
    assert found(book.page(NOTHING, 2, 2)) == ["c", "b"]
    assert found(book.page(NOTHING, 9, 2)) == []
    assert book.page(NOTHING, 1, 2).total == 5


def test_the_entries_of_two_chains_are_in_one_order():
    mesh = ledgers.chain(
        [ledgers.entry("m", age=8.5), ledgers.entry("n", age=6.5)],
        [ledgers.entry("o", age=5.5), ledgers.entry("p", age=1)],
        name=segments.MESH,
    )
    book = kept(*three(), *mesh)
    assert found(book.page(NOTHING, 0, 100)) == ["p", "e", "o", "d", "n", "c", "b", "m", "a"]
    assert found(book.page(NOTHING, 2, 3)) == ["o", "d", "n"]
    assert found(book.page(NOTHING, 8, 3)) == ["a"]
    assert found(book.page(NOTHING, 20, 3)) == []
    # The order is kept until something changes, and what a search finds has it, too.
    assert found(book.page(NOTHING, 0, 1)) == ["p"]
    assert found(book.page(ledger.search("abcdef"), 0, 100)) == ["p", "e", "o", "d", "n", "b", "m", "a"]
    # A line that nobody can read stays where it stands in its chain.
    broken = dataclasses.replace(mesh[1], entries=(mesh[1].entries[0], "00 broken"))
    book.put(broken)
    assert found(book.page(NOTHING, 0, 4)) == ["e", "?", "o", "d"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("b", ["b"]),
        ("system:node:b", ["b"]),
        ("CN=system:node:b", ["b"]),
        ("zzzzzz", ["c"]),
        ("machinejoin", ["c"]),
        ("ns/m-1", ["c"]),
        ("NodeJoin csr-d", ["d"]),
        ("csr-d csr-e", []),
        (ledgers.digest("key of e"), ["e"]),
        (f"sha256:{ledgers.digest('certificate of a').upper()}", ["a"]),
        (":".join(ledgers.digest("b 8")[at : at + 2] for at in range(0, 32, 2)), ["b"]),
        (f"0x{ledgers.digest('b 8')[:32]}", ["b"]),
        ("system:bootstrap:abcdef", ["e", "d", "c", "b", "a"]),
    ],
)
def test_an_entry_is_found_by_its_whole_words(text, names):
    page = kept(*three()).page(ledger.search(text), 0, 100)
    assert found(page) == names
    assert page.whole or not names


def test_where_no_entry_has_the_whole_words_those_that_contain_them_are_found():
    book = kept(*three())
    page = book.page(ledger.search("ootstrap:abc"), 0, 2)
    assert found(book.page(ledger.search("ootstrap:abc"), 4, 2)) == ["a"]
    assert (found(page), page.total, page.whole) == (["e", "d"], 5, False)
    assert kept(*three()).page(ledger.search('certificate"'), 0, 2).total == 0


def test_a_search_by_date_is_of_whole_days():
    book = kept(*three(), *ledgers.chain([ledgers.entry("old", age=60)], name="mesh"))
    assert found(book.page(ledger.search("", "2026-11-18"), 0, 100)) == ["e", "d", "c", "b", "a"]
    assert found(book.page(ledger.search("", "", "2026-11-17"), 0, 100)) == ["old"]
    assert found(book.page(ledger.search("old", "2026-11-18", "2026-11-18"), 0, 100)) == []
    assert found(book.page(ledger.search("old", "2026-11-16", "2026-11-16"), 0, 100)) == ["old"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("x" * 201,), "the words are longer than 200 characters"),
        (("", "today"), '"today" is no date: write it as 2026-11-18'),
        (("", "2026-02-31"), '"2026-02-31" is no date: write it as 2026-11-18'),
        (("", "", "2026-11"), '"2026-11" is no date: write it as 2026-11-18'),
    ],
)
def test_what_cannot_be_searched_for_is_told(given, problem):
    wanted = ledger.search(*given)
    assert wanted.problem == problem
    assert kept(*three()).page(wanted, 0, 10) == ledger.Page((), 0)


def test_a_search_unpacks_and_finds_so_much_and_says_where_to_go_on(monkeypatch):
    monkeypatch.setattr(ledger, "_MOST_SEGMENTS", 1)
    book = kept(*three())
    page = book.page(ledger.search("abcdef"), 0, 10)
    assert (found(page), page.older) == (["e"], "segment-0000000002")
    page = book.page(ledger.search("abcdef"), 0, 10, older=page.older)
    assert (found(page), page.older) == (["d"], "segment-0000000001")
    page = book.page(ledger.search("ootstrap"), 0, 10)
    assert (found(page), page.whole, page.older) == (["e"], False, "segment-0000000002")
    monkeypatch.setattr(ledger, "_MOST_SEGMENTS", 9)
    monkeypatch.setattr(ledger, "_MOST_FOUND", 2)
    assert book.page(ledger.search("nodejoin"), 0, 10).older == "segment-0000000001"


def test_a_segment_that_nobody_knows_may_go():
    book = kept(*three())
    version = book.version
    book.remove("nobody's")
    assert (book.version, len(book)) == (version, 5)


def test_a_segment_that_grows_gives_its_new_entries_and_one_that_was_changed_gives_all():
    book = ledger.Ledger()
    (first,) = ledgers.chain([ledgers.entry("a")])
    assert [line.number for line in book.put(first)] == [1]
    grown = segments.extended(first, ['{"junk": 1}'])
    assert [(line.number, line.entry, bool(line.problem)) for line in book.put(grown)] == [(2, None, True)]
    assert book.put(grown) == ()
    (other,) = ledgers.chain([ledgers.entry("x"), ledgers.entry("y"), ledgers.entry("z")])
    assert len(book.put(other)) == 3
    book.remove(other.name)
    assert (len(book), book.page(NOTHING, 0, 1).rows) == (0, ())


def test_a_line_that_no_rule_can_read_is_a_row_with_the_reason():
    (segment,) = ledgers.chain([ledgers.entry("a")])
    book = kept(segments.extended(segment, ["<b>junk</b>"]))
    unreadable, readable = book.page(NOTHING, 0, 10).rows
    assert (unreadable.entry, readable.problem) == (None, "")
    assert unreadable.problem == "an entry is not JSON of the form that entries have"
    assert book.chains()[0].unreadable == 1
    # By its link alone it can be found, and a date is nothing that it has.
    assert book.page(ledger.search(unreadable.link), 0, 10).rows == (unreadable,)
    assert book.page(ledger.search("junk"), 0, 10).rows == ()
    assert book.page(ledger.search("", "2026-11-01"), 0, 10).rows == (readable,)


def test_a_segment_without_a_readable_entry_is_in_no_range_of_dates():
    book = kept(segments.extended(segments.following(None), ["junk"]))
    assert book.page(ledger.search("", "2026-11-01"), 0, 10).rows == ()
    assert book.page(ledger.search(book.page(NOTHING, 0, 1).rows[0].link), 0, 10).total == 1
    assert book.chains()[0].entries == 1


def test_an_entry_is_at_its_place():
    book = kept(*three())
    line = book.at("segment-0000000002/1")
    assert line is not None
    assert (line.place, line.entry and line.entry.request) == ("segment-0000000002/1", "csr-c")
    for place in (
        "",
        "segment-0000000002",
        "segment-0000000002/0",
        "segment-0000000002/3",
        "nowhere/1",
        "segment-0000000002/²",
    ):
        assert book.at(place) is None


def test_the_newest_with_a_word_are_found_for_other_pages():
    book = kept(*three())
    assert [line.number for line in book.with_word("CN=system:node:D", 5)] == [2]
    assert book.with_word("system:node", 5) == ()


def test_every_chain_is_verified_with_the_head_to_note():
    mesh = ledgers.chain([ledgers.entry("w", signer=signer_names.MESH_IDENTITY)], name="mesh")
    book = kept(*three(), *mesh)
    ordinary, other = book.chains()
    assert (ordinary.name, ordinary.segments, ordinary.entries, ordinary.begins) == ("", 3, 5, 1)
    assert (ordinary.head, ordinary.findings) == (three()[-1].last_link, ())
    assert (other.name, other.head) == ("mesh", mesh[0].last_link)
    assert book.chains() is book.chains()


def test_findings_are_those_of_the_command():
    made = three()
    changed = dataclasses.replace(made[0], entries=tuple(reversed(made[0].entries)))
    for broken in ([changed, *made[1:]], [made[0], made[2]], made[1:]):
        (chain,) = kept(*broken).chains()
        assert set(chain.findings) == set(verification.verify(broken))
        assert chain.findings
    assert kept(*made[1:]).chains()[0].shortened
    assert not kept(changed, *made[1:]).chains()[0].shortened


def test_a_hash_that_was_noted_is_in_the_chain_or_not():
    made = three()
    book = kept(*made)
    assert book.has(made[0].last_link)
    assert book.has(made[1].entries[0].partition(" ")[0])
    assert book.has(made[-1].last_link)
    assert not book.has("0" * 63 + "1")
    assert not book.has("f" * 64)


def test_a_sealed_segment_is_packed_and_read_as_it_was():
    (segment,) = ledgers.chain([ledgers.entry("a"), ledgers.entry("b")], open_end=False)
    packed = ledger_index.keep(segment, ledger_index.read(segment))
    assert isinstance(packed.packed, bytes)
    assert packed.lines() == segment.entries
    assert not packed.may_have("nobody")
    empty = segments.sealed(segments.following(None))
    assert ledger_index.keep(empty, ()).lines() == ()


def test_times_of_a_chain_are_those_of_its_certificates():
    (segment,) = ledgers.chain([ledgers.entry("a", age=3), ledgers.entry("b", age=1)])
    packed = ledger_index.keep(segment, ledger_index.read(segment))
    assert packed.oldest == NOW - datetime.timedelta(hours=3)
    assert packed.newest == NOW - datetime.timedelta(hours=1)


def test_certificates_of_nodes_since_an_instant_are_counted_and_only_a_segment_on_both_sides_of_it_is_unpacked(
    monkeypatch,
):
    serving = ledgers.entry("e", age=1, signer=signer_names.KUBELET_SERVING)
    book = kept(*three(), *ledgers.chain([serving, ledgers.entry("f", age=2, rule="Renewal")], name="mesh"))
    unpacked: list[str] = []
    lines = ledger_index.Kept.lines

    def noting(segment: ledger_index.Kept) -> tuple[str, ...]:
        unpacked.append(segment.name)
        return lines(segment)

    monkeypatch.setattr(ledger_index.Kept, "lines", noting)
    hour = ledgers.HOUR
    # a and b joined before; of c and d one is older; e joined, the serving certificate is no node's login, f was renewed.
    assert book.issued_since(NOW - 6.5 * hour) == ledger_index.Issued(count=3, joins=2)
    assert len(unpacked) == 1
    assert book.issued_since(NOW - 100 * hour) == ledger_index.Issued(count=6, joins=5)
    assert book.issued_since(NOW) == ledger_index.Issued()
    assert book.unreadable == 0
