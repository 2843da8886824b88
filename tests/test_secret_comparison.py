# SPDX-License-Identifier: Apache-2.0
"""Secrets are compared only by `hmac.compare_digest`: a rule over the source, which no linter has.

`==`, `!=`, `in` and `not in` stop at the first difference, and so tell in how much time how much was right. What looks by
its name like a secret, and is none, stands below with its reason; whether a comparison that is allowed is made at the
right place is for the tests of that place.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Iterator, Mapping

import pytest

from tests import source_text

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handfast"
SECRET = re.compile(r"secret|token|passw(or)?d|passphrase|digest|signature|credential|(^|_)h?mac(_|s?$)", re.IGNORECASE)
# What they give says nothing of the value but its size.
SIZES = frozenset({"len", "count"})
COMPARING = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)

_POINTER = "a part of a JSON pointer"
_WORD = "words and signs of an expression"
_NAME = "the name of a Secret"
_UID = "the UID of a Secret or of an account"
_ID = "the id of a token, which is no secret: it is in the names of Secrets and of signatures"
_USAGE = "the word for a usage"
_STDIN = "the word for standard input, which is no secret and no part of one"
_CONSTANT_TIME = "two Tokens, whose == is hmac.compare_digest"
_PUBLISHED = "signatures, which everybody may read in cluster-info"
_OWN_FILE = "digests of files that a machine compares with its own records: nobody asks it, and nobody is answered"
_RENDERED = "the digest of a credential, which everybody reads on the rendering"
# File and comparison -> why that is no secret. One that is gone fails.
_KIND = "whether it is a token or a credential of a fleet, in a word"
ALLOWED: Mapping[tuple[str, str], str] = {
    ("bootstrap/token_secrets.py", "None in {secret.extra_groups, secret.old_groups}"): "names of groups",
    ("bootstrap/token_secrets.py", "secret.extra_groups == secret.old_groups"): "names of groups",
    (
        "rules/mesh/workload_pod.py",
        "jsonpath.text(source, 'serviceAccountToken', 'path') == name",
    ): "the name of a file",
    ("bootstrap/tokens.py", "secret.name != expected"): _NAME,
    ("console/pages/new_token.py", "wish.limits == token_limits.Limits()"): "limits, which are no secret",
    ("console/pages/one_token.py", "each.token == question.of"): _ID,
    ("console/pages/one_token.py", "form.get('word', '').strip() != token_id"): _ID,
    ("console/pages/one_token.py", "row.id == token_id"): _ID,
    ("rules/nodes/join_failures.py", "credential not in failed_joins.SHARED"): _KIND,
    ("rules/nodes/join_failures.py", "token in failed_joins.SHARED"): _KIND,
    ("rules/tokens/failed_joins.py", "failure.token in SHARED"): _KIND,
    ("rules/tokens/failed_joins.py", "token in SHARED"): _KIND,
    ("rules/console/token_forms.py", "self.limits != token_limits.Limits()"): "limits, which are no secret",
    ("rules/console/token_forms.py", "tokens.AUTHENTICATION in usages"): _USAGE,
    ("rules/console/token_forms.py", "tokens.AUTHENTICATION not in self.usages"): _USAGE,
    ("rules/console/tokens.py", "tokens.AUTHENTICATION in self.usages"): _USAGE,
    ("rules/tokens/maker.py", "document.get('type') == tokens.SECRET_TYPE"): "the type of a Secret",
    ("rules/tokens/maker.py", "old.get('type') == tokens.SECRET_TYPE"): "the type of a Secret",
    ("api/cel/mutations.py", "_kind(tokens, place) != 'name'"): _WORD,
    ("api/cel/mutations.py", "_next(tokens, index + 1) == ':'"): _WORD,
    ("api/cel/mutations.py", "_next(tokens, place) != '{'"): _WORD,
    ("api/cel/mutations.py", "_next(tokens, place) == '.'"): _WORD,
    ("api/cel/mutations.py", "_next(tokens, place) == '}'"): _WORD,
    ("api/cel/mutations.py", "tokens[index][0] == 'space'"): _WORD,
    ("api/cel/mutations.py", "tokens[index][1] not in {OBJECT, PATCH}"): _WORD,
    (
        "store/backup_file.py",
        "_chained(self._digest, head, payload) != digest",
    ): "a checksum, which is in the file that is read",
    (
        "wire/etcd_client.py",
        "self._token == token",
    ): "two tokens of our own: whether another call has fetched a new one",
    ("rules/diagnoses/joining.py", "tokens.SIGNING in each.usages"): "the name of a usage",
    ("api/merging/patch.py", "token not in container"): _POINTER,
    ("api/merging/patch.py", "token == '-'"): _POINTER,
    ("api/merging/patch.py", "tokens != source"): _POINTER,
    ("api/merging/patch.py", "tokens[:len(source)] == source"): _POINTER,
    ("apiserver/access/bonds.py", "before.namespace == tokens.NAMESPACE"): "the namespace of a module's constant",
    (
        "apiserver/access/service_account_tokens.py",
        "hashlib.sha256(token.encode()).digest() in self._verified",
    ): "a table found by the digest of the whole token: what is learnt of a digest tells nothing of the token",
    ("apiserver/access/service_account_tokens.py", "token_claims.LEGACY_ISSUER in issuers"): "the name of an issuer",
    ("apiserver/access/bootstrap_cas.py", "bundle.digest == self.bundle.digest"): "of certificates, which are public",
    ("apiserver/access/client_cas.py", "bundle.digest == self.bundle.digest"): "of certificates, which are public",
    ("apiserver/verbs/reads.py", "token.rv == options.INCONSISTENT"): "the version in a continue token",
    (
        "apiserver/admission/token_limits.py",
        "write.user.method == bootstrap_tokens.METHOD",
    ): "the name of a way to authenticate",
    ("client/introduction.py", "(there := tokens.read(found)).token != token"): _CONSTANT_TIME,
    ("bootstrap/cluster_info.py", "tokens.SIGNING not in secret.usages"): _USAGE,
    ("bootstrap/jws.py", "key_id != token.id"): _ID,
    (
        "bootstrap/token_explanation.py",
        "tokens.Token(seen.presented.id, seen.secret.token.secret) == seen.presented",
    ): _CONSTANT_TIME,
    ("bootstrap/token_secrets.py", "secret.name == tokens.secret_name(secret.token.id)"): _ID,
    (
        "bootstrap/token_secrets.py",
        "objects.metadata(document).get('namespace') != tokens.NAMESPACE",
    ): "the namespace of a module's constant",
    ("bootstrap/token_secrets.py", "tokens.AUTHENTICATION in secret.usages"): _USAGE,
    ("rules/machines/doors.py", "tokens.AUTHENTICATION not in view.usages"): _USAGE,
    ("apiserver/access/bootstrap_tokens.py", "tokens.SIGNING in tokens.read(document).usages"): _USAGE,
    (
        "bootstrap/token_explanation.py",
        "first_objects.NODE_GROUP in tokens.parse_groups(seen.secret.extra_groups, seen.secret.old_groups)",
    ): "the name of a group",
    ("bootstrap/token_explanation.py", "tokens.AUTHENTICATION not in seen.secret.usages"): _USAGE,
    ("bootstrap/token_explanation.py", "usage in seen.secret.usages"): _USAGE,
    (
        "controllers/cluster/service_account_tokens.py",
        "self._reported.get(secret.metadata.key) == said",
    ): "a uid, and a name",
    ("bootstrap/token_verdict.py", "tokens.AUTHENTICATION in seen.secret.usages"): _USAGE,
    ("bootstrap/discovery.py", "self.method.token == self.tls_token"): _CONSTANT_TIME,
    ("cli/join_cluster.py", "path != token_input.STDIN"): _STDIN,
    ("cli/join_cluster.py", "source == token_input.STDIN"): _STDIN,
    ("cli/join_flags.py", "token_input.STDIN in _both_ways(parsed, name)"): _STDIN,
    ("cli/join_flags.py", "typed == token_input.STDIN"): _STDIN,
    ("cli/join_flags.py", "parsed['discovery_file'] == token_input.STDIN"): _STDIN,
    ("cli/token.py", "argument == token_input.STDIN"): _STDIN,
    ("cli/token.py", "tokens.AUTHENTICATION not in usages"): _USAGE,
    ("cli/token.py", "view.limits != token_limits.Limits()"): "numbers, names of nodes and networks",
    ("cli/token_input.py", "token == STDIN"): _STDIN,
    ("client/transport.py", "self._token != before"): "one's own token, before and after it was read again",
    ("controllers/joining/bootstrap_signer.py", "_signatures(data) == wanted.data"): _PUBLISHED,
    ("rules/nodes/join_failures.py", "token == failed_joins.UNKNOWN"): _ID,
    ("rules/tokens/failed_joins.py", "key[1] == token"): _ID,
    ("rules/tokens/failed_joins.py", "token == UNKNOWN"): _ID,
    ("controllers/joining/bootstrap_signer.py", "token_id not in now"): _ID,
    (
        "controllers/joining/signing_tokens.py",
        "(None if old is None else old.token) != (None if held is None else held.token)",
    ): "what two versions of a Secret say: the Tokens in them are compared by hmac.compare_digest",
    ("controllers/joining/token_cleaner.py", "tokens.parse_secret_name(name) == tokens.read(document).token.id"): _ID,
    (
        "controllers/cluster/service_account_tokens.py",
        "secret['metadata'].get('resourceVersion') != seen.metadata.resource_version",
    ): "the version of a Secret",
    ("rules/machines/bootstrap_token.py", "secret.account != bootstrapper.ACCOUNT"): "the name of an account",
    ("rules/machines/bootstrap_token.py", "secret.account_uid != account.uid"): _UID,
    ("rules/machines/bootstrap_token.py", "secret.type != service_accounts.LEGACY_TYPE"): "the type of a Secret",
    ("rules/machines/bootstrap_token.py", "secret.uid in account.tokens.values()"): _UID,
    ("rules/machines/bootstrap_token.py", "where == secret.uid"): _UID,
    ("rules/flow.py", "tokens.DEFAULT_GROUP in groups"): "the name of a group",
    (
        "rules/nodes/recovery.py",
        "(entry.requester, entry.token_id) == asked_by",
    ): "who asked, by name, and by the id of a token or the fingerprint of a key, as the ledger shows them",
    ("machines/directory.py", "pool not in credential.CERTIFICATE_POOLS"): "names of pools",
    ("machines/directory.py", "pool.name in credential.CERTIFICATE_POOLS"): "names of pools",
    (
        "rules/machine_config/data_urls.py",
        "function(data).hexdigest() != digits.lower()",
    ): "the hash of a file that its author wrote beside it",
    (
        "rules/machine_config/following.py",
        "current.credential == target.credential",
    ): "digests of credentials, which everybody reads on renderings",
    ("rules/machine_config/following.py", "target.credential != ''"): "whether there is a digest",
    (
        "rules/machine_config/chosen.py",
        "renderings[name].credential == credential",
    ): "the digest of a credential, which everybody reads on the rendering",
    (
        "rules/machine_config/ignition_secrets.py",
        "name == machine_secret_name(machine.partition('/')[2])",
    ): _NAME,
    ("rules/machine_config/ignition_secrets.py", "name == pool_secret_name(pool)"): _NAME,
    ("rules/machines/settings.py", "self.credential == PER_MACHINE"): "a word of the settings",
    ("rules/machines/proofs.py", "credential.machine_uid != machine.uid"): "the UID of a Machine",
    ("rules/machines/proofs.py", "shown[0] != credential.id"): _ID,
    ("pki/pins.py", "len(value) // 2 != hashlib.sha256().digest_size"): "a size",
    ("cli/revoke_output.py", "outcome.phase == credential_rollout.RETURNING"): "how far a roll-out is",
    ("rules/machine_config/credential_rollout.py", "secret.account_uid != account.uid"): _UID,
    ("rules/machine_config/credential_rollout.py", "where != secret.uid"): _UID,
    ("rules/machine_config/in_flight.py", "machine.role in credential.CERTIFICATE_POOLS"): "the name of a pool",
    ("rules/machine_config/in_flight.py", "machine.uid in secrets"): "the UID of a Machine",
    ("rules/machine_config/rollout_progress.py", "pool.pool in credential.CERTIFICATE_POOLS"): "the name of a pool",
    ("rules/machine_config/rollout_progress.py", "rendering.credential == wanted"): _RENDERED,
    ("rules/machine_config/applying.py", "digests[0] != ''"): _RENDERED,
    ("rules/machine_config/applying.py", "digests[0] == digests[1]"): _RENDERED,
    ("rules/machine_config/credential_rollout.py", "secret.account == bootstrapper.ACCOUNT"): "the name of an account",
    (
        "rules/machine_config/credential_rollout.py",
        "secret.type == service_accounts.LEGACY_TYPE",
    ): "the type of a Secret",
    ("rules/pod_service_account.py", "secret not in secrets"): _NAME,
    ("rules/pod_service_account.py", "(secret := jsonpath.text(reference, 'name')) not in pull"): _NAME,
    ("node/configuration_state.py", "hashlib.sha256(content).hexdigest() != digest"): _OWN_FILE,
    ("node/configuration_state.py", "hashlib.sha256(content).hexdigest() != entry.digest"): _OWN_FILE,
    ("node/configuration_state.py", "self.root.entry(f'{_KEPT}/{digest}').digest == digest"): _OWN_FILE,
    ("rules/machine_config/drift.py", "seen.digest != wanted.digest"): _OWN_FILE,
    ("rules/machine_config/applying.py", "entry.digest == hashlib.sha256(self.content).hexdigest()"): _OWN_FILE,
    ("rules/machine_config/applying.py", "machine.sections.get(name) != digest"): _OWN_FILE,
    ("rules/machine_config/applying.py", "hashlib.sha256(content).hexdigest() == digest"): _RENDERED,
    ("rules/machine_config/applying.py", "seen != digest"): _RENDERED,
}


def words(operand: ast.expr) -> Iterator[str]:
    """The names that an operand is made of, as far as they can hold its value."""
    if isinstance(operand, ast.Call):
        called = operand.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in SIZES:
            return
        # `data.get("token")` is the value of that key.
        yield from (arg.value for arg in operand.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    elif isinstance(operand, ast.Name):
        yield operand.id
    elif isinstance(operand, ast.Attribute):
        yield operand.attr
    elif isinstance(operand, ast.Subscript) and isinstance(operand.slice, ast.Constant):
        yield str(operand.slice.value)
    for child in ast.iter_child_nodes(operand):
        if isinstance(child, ast.expr):
            yield from words(child)


def is_secret(word: str) -> bool:
    # In capitals are constants of the program: names of keys, types and sizes.
    return not word.isupper() and SECRET.search(word) is not None


def comparisons(content: str) -> list[str]:
    """Every comparison of something that is called a secret, as it stands in the source."""
    return [
        ast.unparse(node)
        for node in ast.walk(source_text.tree(content))
        if isinstance(node, ast.Compare)
        and any(isinstance(operator, COMPARING) for operator in node.ops)
        and any(is_secret(word) for operand in (node.left, *node.comparators) for word in words(operand))
    ]


@functools.cache
def found() -> frozenset[tuple[str, str]]:
    return frozenset(
        (str(path.relative_to(SOURCE)), comparison)
        for path in sorted(SOURCE.rglob("*.py"))
        for comparison in comparisons(path.read_text())
    )


def test_secrets_are_compared_in_constant_time_only():
    wrong = sorted(f"{path}: {comparison}" for path, comparison in found() - ALLOWED.keys())
    assert wrong == [], "use hmac.compare_digest, or say in ALLOWED why this is no secret"


def test_nothing_is_allowed_that_is_not_there():
    assert sorted(ALLOWED.keys() - found()) == []


def test_there_are_secrets_to_compare():
    """Without any, the rule would be kept."""
    using = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if "compare_digest" in path.read_text()]
    assert {"bootstrap/tokens.py", "rules/tokens/service_accounts.py"} <= set(using)


@pytest.mark.parametrize(
    "line",
    [
        *("secret == given", "given != self.secret", "found.token.secret == presented.secret", "token in known"),
        *("if data['token-secret'] != x: pass", "data.get('password') == x", "token.encode() == x", "x not in secrets"),
        *(
            "hmac.digest(key, data, 'sha256') == mac",
            "a < b == signature",
            "bytes(client_secret) == x",
            "(await token) == x",
        ),
        *("[x for x in y if x.digest == z]", "assert passphrase == x", "str(bearer_token)[1:] != x", "x == f'{token}'"),
    ],
)
def test_what_the_rule_sees(line: str):
    assert comparisons(line if "await" not in line else f"async def f():\n    {line}")


@pytest.mark.parametrize(
    "line",
    [
        *("hmac.compare_digest(secret, given)", "len(token) == 3", "token.count('.') != 2", "token is None"),
        *("kind == SECRETS", "machine == x", "name in macros", "'secret' == kind", "size > len(signature)"),
        *("secret = given", "tokens.parse(text)", "secret < 3"),
    ],
)
def test_what_the_rule_lets_pass(line: str):
    assert comparisons(line) == []
