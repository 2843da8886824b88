# SPDX-License-Identifier: Apache-2.0
"""What the follower of a machine's configuration counts. It measures nothing itself: values are read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import core

from handfast.node import configuration
from handfast.rules.machine_config import names

STATE: Final = "handfast_node_configuration_state"
DRIFTED: Final = "handfast_node_configuration_drifted_paths"
_STATES: Final = (names.DONE, names.WORKING, names.DEGRADED, names.UNRECONCILABLE)


class ConfigurationMetrics:
    """A collector: `registry.register(ConfigurationMetrics(configuration))`."""

    def __init__(self, followed: configuration.Configuration) -> None:
        self._followed = followed

    def collect(self) -> Iterator[core.Metric]:
        status = self._followed.status
        states = core.GaugeMetricFamily(STATE, "1 for the state of this machine's configuration.", labels=["state"])
        for state in _STATES:
            states.add_metric([state], float(status.state == state))
        yield states
        yield core.GaugeMetricFamily(
            DRIFTED, "Paths that are not as the configuration left them.", float(status.drifted)
        )
