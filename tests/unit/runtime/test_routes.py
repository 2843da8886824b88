# SPDX-License-Identifier: Apache-2.0
"""Which of this machine's addresses leads where."""

from handfast.runtime import routes


def test_the_way_to_this_machine_is_loopback():
    assert routes.source("127.0.0.1") == "127.0.0.1"


def test_where_there_is_no_way_there_is_no_source():
    assert routes.source("no-such-host.invalid") == ""
