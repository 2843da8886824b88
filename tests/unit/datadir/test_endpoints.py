# SPDX-License-Identifier: Apache-2.0
"""endpoints.json: what it says, and that it can be removed twice."""

import json

from handfast.datadir import endpoints


def test_the_file_names_addresses_and_processes_and_may_be_removed_twice(tmp_path):
    running = endpoints.Endpoints(
        apiserver="https://127.0.0.1:1", controllers_admin="http://127.0.0.1:2", supervisor=7, pids={"apiserver": 8}
    )
    endpoints.write(tmp_path, running)
    assert json.loads((tmp_path / "endpoints.json").read_bytes()) == {
        "apiserver": "https://127.0.0.1:1",
        "controllersAdmin": "http://127.0.0.1:2",
        "pids": {"supervisor": 7, "apiserver": 8},
    }
    endpoints.remove(tmp_path)
    endpoints.remove(tmp_path)
    assert not (tmp_path / "endpoints.json").exists()
