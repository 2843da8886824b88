# SPDX-License-Identifier: Apache-2.0
"""The texts of the health endpoints."""

from __future__ import annotations

import pytest

from handfast.telemetry import health


def made(problem: str | None = None, not_ready: str | None = None) -> health.Health:
    return health.Health(live={"replica": lambda: problem}, ready={"shutdown": lambda: not_ready})


class TestReport:
    @pytest.mark.parametrize("endpoint", ["livez", "readyz", "healthz"])
    def test_a_check_that_passes_is_ok(self, endpoint: str) -> None:
        assert made().report(endpoint) == (True, "ok")

    def test_a_verbose_report_names_every_check(self) -> None:
        expected = "[+]ping ok\n[+]replica ok\n[+]shutdown ok\nreadyz check passed\n"
        assert made().report("readyz", verbose=True) == (True, expected)

    def test_liveness_does_not_ask_what_readiness_does(self) -> None:
        assert made(not_ready="the server is stopping").report("livez") == (True, "ok")
        well, text = made(not_ready="the server is stopping").report("readyz")
        assert not well
        assert "[-]shutdown failed: the server is stopping\n" in text
        assert text.endswith("readyz check failed\n")

    def test_an_excluded_check_is_not_asked(self) -> None:
        well, text = made(problem="stopped").report("livez", exclude=["replica", "none"], verbose=True)
        assert well
        assert text == "[+]ping ok\n[+]replica excluded: ok\nlivez check passed\n"


class TestNotes:
    def test_shown_beside_a_check_that_passes(self) -> None:
        found = made()
        found.notes["replica"] = lambda: "it is late"
        assert found.report("readyz") == (True, "ok")
        assert "[+]replica ok, but it is late\n" in found.report("readyz", verbose=True)[1]
        assert "[+]replica ok\n" in found.report("readyz", verbose=True, withhold=True)[1]
        found.notes["replica"] = lambda: None
        assert "[+]replica ok\n" in found.report("readyz", verbose=True)[1]


class TestOne:
    def test_ping_always_answers(self) -> None:
        assert health.Health().one("livez", "ping") == (True, "ok")

    def test_a_check_that_passes_is_ok(self) -> None:
        assert made().one("livez", "replica") == (True, "ok")

    def test_not_well(self) -> None:
        assert made(problem="stopped").one("livez", "replica") == (False, "replica failed: stopped\n")

    def test_a_check_that_does_not_exist_has_no_answer(self) -> None:
        assert made().one("livez", "shutdown") is None
        assert made().one("readyz", "nonsense") is None
