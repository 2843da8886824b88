# SPDX-License-Identifier: Apache-2.0
"""The files that lie in the demo's directory before it begins: a list of machines, a shop, and the programs of it. They are text: nothing here runs.

The two programs of the shop know nothing of TLS, of certificates or of Handfast. They need Python and nothing else.
"""

from __future__ import annotations

import json
from typing import Final

_SHOP: Final = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "shop"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "client", "namespace": "shop"}},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}]},
    },
)
_WEB: Final = '''\
"""Says hello to whoever calls, by the name that the proxy has verified."""
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"hello {self.headers.get('l5d-client-id', 'stranger')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''
_CLIENT: Final = '''\
"""Asks the same URL twice a second, and prints what it is answered: the code, who answered, and what."""
import sys, time, urllib.error, urllib.request

while True:
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
            print(answer.status, answer.headers.get("l5d-server-id"), "says:", answer.read().decode(), flush=True)
    except urllib.error.HTTPError as error:
        print(error.code, error.headers.get("l5d-proxy-error"), flush=True)
    except OSError as error:
        print("no answer:", error, flush=True)
    time.sleep(0.5)
'''
_ASK: Final = '''\
"""For who has no kubectl: print cluster-info, create the objects of a file, or show Pods, as the administrator of $KUBECONFIG."""
import base64, json, os, re, ssl, sys, tempfile, urllib.error, urllib.request

text = open(os.environ["KUBECONFIG"]).read()
server = re.search(r"server: (\\S+)", text)[1]
ca, *pair = (
    base64.b64decode(re.search(rf"{name}-data: (\\S+)", text)[1])
    for name in ("certificate-authority", "client-certificate", "client-key")
)
context = ssl.create_default_context(cadata=ca.decode())
with tempfile.NamedTemporaryFile() as file:
    file.write(b"".join(pair))
    file.flush()
    context.load_cert_chain(file.name)

def ask(path, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer)

if sys.argv[1] == "cluster-info":
    print(ask("/api/v1/namespaces/kube-public/configmaps/cluster-info")["data"]["kubeconfig"])
for pod in ask(f"/api/v1/namespaces/{sys.argv[2]}/pods")["items"] if sys.argv[1] == "pods" else ():
    print(pod["metadata"]["name"], *(each["name"] for kind in ("initContainers", "containers") for each in pod["spec"][kind]))
for item in json.load(open(sys.argv[2]))["items"] if sys.argv[1] == "create" else ():
    namespace = item["metadata"].get("namespace")
    place = f"namespaces/{namespace}/" if namespace else ""
    ask(f"/api/v1/{place}{item['kind'].lower()}s", item)
    print(f"{item['kind'].lower()}/{item['metadata']['name']} created")
'''

# name -> text
FILES: Final = {
    "machines.csv": "name,dns,ip,role\nrack-1,rack-1,192.0.2.11,worker\n",
    "shop.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": _SHOP}, indent=1) + "\n",
    "web.py": _WEB,
    "client.py": _CLIENT,
    "ask.py": _ASK,
}
