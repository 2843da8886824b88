# SPDX-License-Identifier: Apache-2.0
"""How a workload is called: the name in its certificate, composed from its service account and parsed back.

The injector, the destination service and the identity service all ask here, so that they cannot differ. It does not say who may
have a name: the identity service compares it with a reviewed token.

1. The namespace of the control plane is an RFC 1123 label. The trust domain is an RFC 1123 subdomain whose labels have at most 63
   characters and whose last label is no number: TLS clients take a name that ends in a number for an address.
2. Account, namespace and UID are labels each. Kubernetes allows dots in the names of accounts: such an account gets no name, since
   `a.b` in `c` and `a` in `b.c` would be one.
3. A name has at most 253 characters.
4. A name of the scheme `uid` has a UID. A name of the other schemes has none, whatever is known of the account.
5. A name is parsed to the only account whose name it is: every part is a label, and what follows is the scheme's own ending. Upper case, a
   dot at the end or a wildcard is no name.

| scheme | name |
|---|---|
| `sa` | `<sa>.<ns>.sa.linkerd-identity.<control-plane-ns>.<trust-domain>`, the seed's |
| `serviceaccount` | `<sa>.<ns>.serviceaccount.identity.<control-plane-ns>.<trust-domain>`, as Linkerd ships it |
| `uid` | `<uid>.` before that of `sa`: an account made anew under an old name is another one |

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_names.py |
|---|---|---|---|---|
| a tenant | the right to make accounts in `c` | an account `a.b`, to be called as account `a` in a namespace `b.c` | 2 | test_an_account_with_a_dot_gets_no_name |
| … | an account called `sa`, or as another part of a name | be read as somebody else | 5 | test_a_name_is_parsed_to_the_account_that_it_was_composed_from |
| … | an account made anew, under the name of a deleted one | go on as the deleted one, where the scheme is `uid` | 4 | test_an_account_made_anew_has_another_name |
| a client | a certificate of another mesh | be read as a workload of this one | 5 | test_what_is_no_name_of_this_mesh_is_refused |
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.rules.mesh import control_plane

MAX_LENGTH: Final = 253
_NAMED: Final = {"account": "service account", "namespace": "namespace", "uid": "UID"}


class Scheme(enum.StrEnum):
    """How names are composed; the values are those of the setting."""

    ACCOUNT = "sa"
    SHIPPED = "serviceaccount"
    UID = "uid"


_MIDDLE: Final = {
    Scheme.ACCOUNT: "sa.linkerd-identity",
    Scheme.SHIPPED: "serviceaccount.identity",
    Scheme.UID: "sa.linkerd-identity",
}


class NotALabel(errors.Refused):
    """A part of the name is no RFC 1123 label (1, 2)."""

    reason = "NotALabel"


class TooLong(errors.Refused):
    """The name has more than 253 characters (3)."""

    reason = "IdentityTooLong"


class NoUid(errors.Refused):
    """Names have a UID here, and the account's is not known (4)."""

    reason = "UidUnknown"


class NotAnIdentity(errors.Refused):
    """A text that is no name of this mesh (5)."""

    reason = "NotAnIdentity"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A service account; without a UID where nobody knows it, or the scheme needs none."""

    namespace: str
    name: str
    uid: str = ""


class Mesh(msgspec.Struct, frozen=True):
    """What every name of one mesh ends in. Making one is refused where a part is wrong (1)."""

    trust_domain: str
    control_plane_namespace: str = control_plane.NAMESPACE
    scheme: Scheme = Scheme.ACCOUNT

    def __post_init__(self) -> None:
        # 1. a label, and a subdomain
        if (wrong := objects.dns_label(self.control_plane_namespace)) is not None:
            raise NotALabel(f"control plane namespace {self.control_plane_namespace!r}: {wrong}")
        require_trust_domain(self.trust_domain)

    @property
    def ending(self) -> str:
        """What follows account and namespace."""
        return f"{_MIDDLE[self.scheme]}.{self.control_plane_namespace}.{self.trust_domain}"

    def name(self, account: Account) -> str:
        """The name of an account's workloads."""
        # 2. labels each
        parts = [_label("account", account.name), _label("namespace", account.namespace)]
        # 4. with a UID where the scheme has one
        if self.scheme is Scheme.UID:
            parts.insert(0, _uid(account))
        name = ".".join([*parts, self.ending])
        # 3. not too long
        if len(name) > MAX_LENGTH:
            raise TooLong(
                f"the identity of account {account.name} in namespace {account.namespace} would have {len(name)} "
                f"characters; at most {MAX_LENGTH} are allowed",
                hint="use a shorter name for the account or the namespace, or a shorter trust domain",
            )
        return name

    def account(self, name: str) -> Account:
        """Whose name it is (5)."""
        own = name.removesuffix(f".{self.ending}")
        parts = own.split(".")
        wanted = 3 if self.scheme is Scheme.UID else 2
        # 5. the scheme's ending, and labels before it
        if own == name or len(parts) != wanted or len(name) > MAX_LENGTH or any(map(objects.dns_label, parts)):
            raise NotAnIdentity(
                f"{name[:MAX_LENGTH]!r} is no identity of this mesh", hint=f"identities end in .{self.ending}"
            )
        *uid, account, namespace = parts
        return Account(namespace=namespace, name=account, uid="".join(uid))

    def service(self, account: str, uid: str = "") -> str:
        """The name of a part of the control plane, by its account."""
        return self.name(Account(namespace=self.control_plane_namespace, name=account, uid=uid))

    def spiffe(self, account: Account) -> str:
        """The same account as a SPIFFE ID, which stands beside the DNS name where `spiffe` is set."""
        namespace, name = _label("namespace", account.namespace), _label("account", account.name)
        return f"spiffe://{self.trust_domain}/ns/{namespace}/sa/{name}"


def require_trust_domain(trust_domain: str) -> None:
    """Return if identities may end in this, else refuse (1)."""
    wrong = not_dns(trust_domain)
    if wrong is not None:
        raise NotALabel(f"trust domain {trust_domain[:MAX_LENGTH]!r}: {wrong}", hint="as in cluster.local")


def not_dns(text: str) -> str | None:
    """None if a certificate can have this DNS name, else what is wrong (1)."""
    labels = text.split(".")
    wrong = objects.dns_subdomain(text) or next(filter(None, map(objects.dns_label, labels)), None)
    return "its last label must not be a number" if wrong is None and labels[-1].isdigit() else wrong


def downward(scheme: Scheme, uid: str = "") -> str:
    """The name as the variables of a container compose it: K8S_SA, K8S_NS, L5D_NS and TRUST_DOMAIN.

    Of these, Kubernetes fills in the first two. There is no such variable for the UID of an account, so that it is written out.
    """
    name = f"$(K8S_SA).$(K8S_NS).{_MIDDLE[scheme]}.$(L5D_NS).$(TRUST_DOMAIN)"
    return f"{_label('uid', uid)}.{name}" if scheme is Scheme.UID else name


def _uid(account: Account) -> str:
    if not account.uid:
        raise NoUid(
            f"names have the UID of their account here, and that of {account.namespace}/{account.name} is not known",
            hint="have the webhook inject it, which asks the API server, or choose another name scheme",
        )
    return _label("uid", account.uid)


def _label(part: str, text: str) -> str:
    wrong = objects.dns_label(text)
    if wrong is None:
        return text
    hint = "rename the account: names in the mesh have no room for dots in it" if "." in text else None
    raise NotALabel(f"{_NAMED[part]} {text[:MAX_LENGTH]!r} is not a label: {wrong}", hint=hint)
