# SPDX-License-Identifier: Apache-2.0
"""Where requests end up: metrics, the log and the audit log."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp.test_utils import make_mocked_request

from handfast.api import kinds, status
from handfast.apiserver import audit, audit_log, calls, identity, request
from handfast.apiserver.access import authz
from handfast.apiserver.admission import plugin
from handfast.rules import decision
from handfast.telemetry import metrics, rotating
from tests.unit.apiserver import admission_world
from tests.world.clock import MovableClock

TOKEN = "abcdef.0123456789abcdef"
ALICE = identity.User("alice", (identity.AUTHENTICATED,), method="x509")
ROOT = identity.User("root", ("system:masters", identity.AUTHENTICATED), method="x509")
PODS = next(kind for kind in kinds.builtin() if (kind.group, kind.plural) == ("", "pods"))


def asking(target: str = "/api/v1/namespaces/web/pods/p", **more: Any) -> calls.Call:
    http = make_mocked_request("GET", target, {"User-Agent": "test"})
    return calls.Call(http, "boot-1", request.parse("GET", target), "192.0.2.1", more.pop("user", ALICE), **more)


class Desk:
    """An auditor with everything it writes to."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.metrics = metrics.ApiServerMetrics()
        clock = MovableClock()
        self.writer = rotating.LineWriter(rotating.open_sink(str(path), clock))
        self.audit = audit.Audit(self.metrics, audit_log.AuditLog(self.writer, clock))

    def lines(self) -> list[dict[str, Any]]:
        self.writer.close()
        return [msgspec.json.decode(line) for line in self.path.read_bytes().splitlines()]

    def counted(self) -> str:
        return self.metrics.text().decode()


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    return Desk(tmp_path / "audit" / "audit.log")


def test_answers_are_counted_and_written(desk: Desk) -> None:
    desk.audit.answered(asking(kind=PODS, decision="yes"), 200, 0.002)
    desk.audit.answered(asking(), 404, 0.001, status.not_found("pods", "", "p"))
    [one, other] = desk.lines()
    assert (one["responseStatus"]["code"], one["annotations"]["authorization.k8s.io/decision"]) == (200, "allow")
    assert other["responseStatus"]["message"] == 'pods "p" not found'
    assert 'code="200",group="",resource="pods",subresource="",verb="get"} 1.0' in desk.counted()
    assert 'code="404",group="",resource="",subresource="",verb="get"} 1.0' in desk.counted()
    assert "handfast_audit_lines_total 2.0" in desk.counted()
    assert "handfast_audit_lost_total 0.0" in desk.counted()


def test_subresources_are_labels_only_if_they_exist(desk: Desk) -> None:
    for name in ("status", "invented"):
        desk.audit.answered(asking(f"/api/v1/namespaces/web/pods/p/{name}", kind=PODS), 200, 0.001)
    desk.lines()
    assert 'subresource="status"' in desk.counted()
    assert 'subresource="other"' in desk.counted()
    assert "invented" not in desk.counted()


def test_a_watch_has_two_lines(desk: Desk) -> None:
    asked = asking("/api/v1/pods?watch=1", kind=PODS)
    desk.audit.started(asked, 200, 0.001)
    desk.audit.answered(asked, 200, 1800.0)
    lines = desk.lines()
    assert [line["stage"] for line in lines] == ["ResponseStarted", "ResponseComplete"]
    assert lines[1]["annotations"]["handfast.dev/latency-us"] == "1800000000"
    assert 'code="200",group="",resource="pods",subresource="",verb="watch"} 1.0' in desk.counted()


def test_a_client_that_went_away(desk: Desk) -> None:
    desk.audit.abandoned(asking(kind=PODS, decision="yes"), 0.5)
    [line] = desk.lines()
    assert "responseStatus" not in line
    assert line["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert 'code="499"' in desk.counted()


def test_losses_are_counted(desk: Desk) -> None:
    desk.lines()
    desk.audit.answered(asking(), 200, 0.001)
    assert "handfast_audit_lost_total 1.0" in desk.counted()


def test_without_an_audit_log() -> None:
    made = metrics.ApiServerMetrics()
    auditor = audit.Audit(made)
    auditor.started(asking(), 200, 0.1)
    auditor.answered(asking(), 200, 0.1)
    auditor.abandoned(asking(), 0.1)
    assert "handfast_audit" not in made.text().decode()
    assert "apiserver_request_total" in made.text().decode()


REFUSALS = [
    (identity.Unauthorized("Expired", "expired at noon"), "authenticate", "Expired", "expired at noon"),
    (
        authz.Refusal(authz.attributes(ALICE, asking().info), decision.NotMine("NoRuleAllows", "", "rbac")),
        "authorise",
        "NoRuleAllows",
        'pods "p" is forbidden: ',
    ),
    (
        plugin.Refusal(
            admission_world.write_of("CREATE", ("", "pods"), name="p"), decision.Deny("OtherNode", "not yours", "r")
        ),
        "admission",
        "OtherNode",
        'pods "p" is forbidden: not yours',
    ),
    (status.forbidden("pods", "", "p", "quota"), "admission", "Forbidden", 'pods "p" is forbidden: quota'),
]


@pytest.mark.parametrize(("error", "station", "reason", "detail"), REFUSALS)
def test_refusals_are_logged(error: status.StatusError, station: str, reason: str, detail: str) -> None:
    made = metrics.ApiServerMetrics()
    with structlog.testing.capture_logs() as logs:
        audit.Audit(made).refused(asking(decision="yes"), error)
    [line] = logs
    assert line["detail"].startswith(detail)
    assert {name: line[name] for name in ("event", "station", "reason", "user", "method", "source", "verb")} == {
        "event": "request refused",
        "station": station,
        "reason": reason,
        "user": "alice",
        "method": "x509",
        "source": "192.0.2.1",
        "verb": "get",
    }
    assert f'handfast_apiserver_refused_total{{reason="{reason}",station="{station}"}} 1.0' in made.text().decode()


def test_limits_are_only_counted() -> None:
    made = metrics.ApiServerMetrics()
    with structlog.testing.capture_logs() as logs:
        audit.Audit(made).refused(asking(), status.StatusError("TooManyRequests", "too many"))
        audit.Audit(made).refused(asking(), status.not_found("pods", "", "p"))
    assert logs == []
    assert 'reason="TooManyRequests",station="ratelimit"} 1.0' in made.text().decode()


def test_the_log_names_who_really_asks_and_no_token() -> None:
    asked = asking("/" + TOKEN.replace(".", "%2E"), impersonator=ROOT)
    with structlog.testing.capture_logs() as logs:
        audit.Audit(metrics.ApiServerMetrics()).failed(asked, ValueError("a bug"))
    [line] = logs
    assert (line["user"], line["impersonator"], line["path"]) == ("alice", "root", "/<redacted>")
    assert (line["event"], line["error"]) == ("request failed", "ValueError('a bug')")
