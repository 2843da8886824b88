# SPDX-License-Identifier: Apache-2.0
"""Tables: whole where a program reads them, and no wider than the terminal where a person does."""

import sys

import pytest

from handfast.cli import tables

HEAD = ("NAME", "OWNER", "ABOUT")
ROWS = [("first", "somebody in particular", "a description that is long"), ("b", "me", "")]


@pytest.fixture
def terminal(monkeypatch):
    """Sets the width of the terminal that stdout is."""

    def set_width(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return set_width


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_columns_are_as_wide_as_their_widest_cell():
    assert tables.table(("A", "LONG"), [("xyz", "1"), ("y", "")]) == "A     LONG\nxyz   1\ny"


def test_a_cell_stays_in_its_row():
    assert tables.table(("A", "B"), [("x\ny", "\x1b[1m")]).splitlines() == ["A          B", r"x\u000ay   \u001b[1m"]


def test_nothing_is_left_out_where_no_terminal_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER"))
    assert all(cell in text for row in (HEAD, *ROWS) for cell in row)


def test_what_fits_is_left_as_it_is(terminal):
    whole = tables.table(HEAD, ROWS, minor=("ABOUT",))
    terminal(widest(whole))
    assert tables.table(HEAD, ROWS, minor=("ABOUT",)) == whole


def test_the_least_important_column_is_shortened_first(terminal):
    terminal(50)
    assert tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER")) == (
        "NAME    OWNER                    ABOUT\nfirst   somebody in particular   a description th…\nb       me"
    )


def test_others_are_left_out_before_a_sentence_cannot_be_read(terminal):
    rows = [("w1", "token abcdef", "it has a certificate, and has not registered so far"), ("w2", "by hand", "")]
    for width, head in ((80, ["NODE", "BY", "PROBLEM"]), (50, ["NODE", "PROBLEM"])):
        terminal(width)
        text = tables.table(("NODE", "BY", "PROBLEM"), rows, minor=("BY", "PROBLEM"), sentences="PROBLEM")
        assert text.splitlines()[0].split() == head
        assert "it has a certificate, and has not reg" in text
        assert widest(text) <= width
    # Where there is nothing else, it gives way, too.
    terminal(20)
    text = tables.table(("NODE", "BY", "PROBLEM"), rows, minor=("BY", "PROBLEM"), sentences="PROBLEM")
    assert text.splitlines()[1] == "w1     it has a cer…"


def test_then_the_next_one(terminal):
    terminal(30)
    text = tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER"))
    assert text.splitlines()[1] == "first   somebody i…   a descr…"
    assert widest(text) == 30


def test_what_still_does_not_fit_is_left_out(terminal):
    terminal(20)
    assert tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER")).splitlines()[:2] == [
        "NAME    OWNER",
        "first   somebody in…",
    ]
    terminal(10)
    assert tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER")) == "NAME\nfirst\nb"


def test_a_column_that_is_important_is_never_cut(terminal):
    terminal(3)
    assert tables.table(HEAD, ROWS, minor=("ABOUT", "OWNER", "NOT THERE")) == "NAME\nfirst\nb"


def test_a_name_in_a_sentence_stays_in_one_piece(terminal):
    terminal(30)
    name = "kube-system/" + "a" * 40
    assert f"   {name}\n" in tables.table(("CHECK", "DETAIL"), [("x", f"see {name} there")])


def test_sentences_are_wrapped(terminal):
    terminal(60)
    rows = [("clock", "this machine's clock and the server's agree to the second"), ("token", "it is there"), ("x", "")]
    assert tables.table(("CHECK", "DETAIL"), rows) == (
        "CHECK   DETAIL\n"
        "clock   this machine's clock and the server's agree to the\n"
        "        second\n"
        "token   it is there\n"
        "x"
    )
