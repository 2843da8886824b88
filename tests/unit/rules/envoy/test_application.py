# SPDX-License-Identifier: Apache-2.0
"""How the application beside the proxy is called."""

from handfast.rules.envoy import application, http, ports

PORT = ports.Port(number=80, application=8080)


def test_the_application_is_called_as_it_was_or_in_http1():
    plain, http1 = application.clusters(PORT)
    assert (plain["name"], http1["name"]) == ("application-80", "application-http1-80")
    assert http1["typed_extension_protocol_options"][http.OPTIONS]["explicit_http_config"] == {
        "http_protocol_options": {}
    }
