# SPDX-License-Identifier: Apache-2.0
"""nginx beside the mesh's proxies: two that do mutual TLS with one another, as plainly as it goes, and one that answers. It measures nothing.

One worker each, TLS 1.3, connections that are kept; the server is asked for its name, and tells the application who calls.
"""

from __future__ import annotations

import pathlib
from typing import Final

# What the certificate of both sides is for.
NAME: Final = "web.example"
_MAIN: Final = """\
daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
    keepalive_requests 1000000000;
    proxy_http_version 1.1;
    {body}
}}
"""
_BACKEND: Final = 'server {{ listen {listen}; location / {{ return 200 "hello, world\\n"; }} }}'
_CLIENT: Final = """
    upstream mesh {{ server {to}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen {listen};
        location / {{
            proxy_pass https://mesh; proxy_set_header Connection "";
            proxy_ssl_certificate {pki}/leaf.crt; proxy_ssl_certificate_key {pki}/leaf.key;
            proxy_ssl_trusted_certificate {pki}/ca.crt; proxy_ssl_verify on; proxy_ssl_name {name}; proxy_ssl_server_name on;
            proxy_ssl_protocols TLSv1.3;
        }}
    }}
"""
_SERVER: Final = """
    upstream application {{ server {to}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen {listen} ssl;
        ssl_certificate {pki}/leaf.crt; ssl_certificate_key {pki}/leaf.key;
        ssl_client_certificate {pki}/ca.crt; ssl_verify_client on; ssl_protocols TLSv1.3;
        location / {{
            proxy_pass http://application; proxy_set_header Connection ""; proxy_set_header l5d-client-id $ssl_client_s_dn;
        }}
    }}
"""


def backend(listen: str) -> str:
    """Answers every request with 13 octets."""
    return _BACKEND.format(listen=listen)


def client(listen: str, to: str, pki: pathlib.Path) -> str:
    """From plaintext to mutual TLS; `pki` has `ca.crt`, `leaf.crt` and `leaf.key`."""
    return _CLIENT.format(listen=listen, to=to, pki=pki, name=NAME)


def server(listen: str, to: str, pki: pathlib.Path) -> str:
    """From mutual TLS to plaintext."""
    return _SERVER.format(listen=listen, to=to, pki=pki)


def command(home: pathlib.Path, body: str) -> list[str]:
    """The words that start it, in a directory of its own."""
    home.mkdir()
    (home / "nginx.conf").write_text(_MAIN.format(home=home, body=body))
    return ["nginx", "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]
