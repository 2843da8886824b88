# SPDX-License-Identifier: Apache-2.0
"""The messages of etcd's v3 API that the store engine says or reads, by their field numbers.

Enumerations are numbers here: on the wire they are the same. It gives no meaning to any of them, and calls nothing: see
`etcd_client`.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.wire import descriptors
from handfast.wire.descriptors import many, one

PACKAGE: Final = "etcdserverpb"

# Compare.result and Compare.target, Event.type, AlarmMember.alarm.
EQUAL: Final = 0
MOD: Final = 2
VALUE: Final = 3
DELETE: Final = 1
NOSPACE: Final = 1


def _is(name: str) -> str:
    return f"{PACKAGE}.{name}"


_HEADER: Final = one("header", 1, _is("ResponseHeader"))

_MESSAGES: Final[descriptors.Messages] = {
    "KeyValue": (
        one("key", 1, "bytes"),
        one("create_revision", 2, "int64"),
        one("mod_revision", 3, "int64"),
        one("version", 4, "int64"),
        one("value", 5, "bytes"),
        one("lease", 6, "int64"),
    ),
    "Event": (one("type", 1, "int32"), one("kv", 2, _is("KeyValue"))),
    "ResponseHeader": (
        one("cluster_id", 1, "uint64"),
        one("member_id", 2, "uint64"),
        one("revision", 3, "int64"),
        one("raft_term", 4, "uint64"),
    ),
    "RangeRequest": (
        one("key", 1, "bytes"),
        one("range_end", 2, "bytes"),
        one("limit", 3, "int64"),
        one("revision", 4, "int64"),
        one("keys_only", 8, "bool"),
        one("count_only", 9, "bool"),
    ),
    "RangeResponse": (_HEADER, many("kvs", 2, _is("KeyValue")), one("more", 3, "bool"), one("count", 4, "int64")),
    "PutRequest": (one("key", 1, "bytes"), one("value", 2, "bytes")),
    "PutResponse": (_HEADER,),
    "DeleteRangeRequest": (one("key", 1, "bytes"), one("range_end", 2, "bytes")),
    "DeleteRangeResponse": (_HEADER, one("deleted", 2, "int64")),
    "RequestOp": (
        one("request_range", 1, _is("RangeRequest"), oneof="request"),
        one("request_put", 2, _is("PutRequest"), oneof="request"),
        one("request_delete_range", 3, _is("DeleteRangeRequest"), oneof="request"),
    ),
    "ResponseOp": (
        one("response_range", 1, _is("RangeResponse"), oneof="response"),
        one("response_put", 2, _is("PutResponse"), oneof="response"),
        one("response_delete_range", 3, _is("DeleteRangeResponse"), oneof="response"),
    ),
    "Compare": (
        one("result", 1, "int32"),
        one("target", 2, "int32"),
        one("key", 3, "bytes"),
        one("mod_revision", 6, "int64", oneof="target_union"),
        one("value", 7, "bytes", oneof="target_union"),
    ),
    "TxnRequest": (
        many("compare", 1, _is("Compare")),
        many("success", 2, _is("RequestOp")),
        many("failure", 3, _is("RequestOp")),
    ),
    "TxnResponse": (_HEADER, one("succeeded", 2, "bool"), many("responses", 3, _is("ResponseOp"))),
    "CompactionRequest": (one("revision", 1, "int64"), one("physical", 2, "bool")),
    "CompactionResponse": (_HEADER,),
    "WatchRequest": (
        one("create_request", 1, _is("WatchCreateRequest"), oneof="request_union"),
        one("progress_request", 3, _is("WatchProgressRequest"), oneof="request_union"),
    ),
    "WatchCreateRequest": (
        one("key", 1, "bytes"),
        one("range_end", 2, "bytes"),
        one("start_revision", 3, "int64"),
        one("fragment", 8, "bool"),
    ),
    "WatchProgressRequest": (),
    "WatchResponse": (
        _HEADER,
        one("watch_id", 2, "int64"),
        one("created", 3, "bool"),
        one("canceled", 4, "bool"),
        one("compact_revision", 5, "int64"),
        one("cancel_reason", 6, "string"),
        one("fragment", 7, "bool"),
        many("events", 11, _is("Event")),
    ),
    "StatusRequest": (),
    "StatusResponse": (
        _HEADER,
        one("version", 2, "string"),
        one("dbSize", 3, "int64"),
        one("leader", 4, "uint64"),
        one("raftIndex", 5, "uint64"),
        one("raftTerm", 6, "uint64"),
        one("dbSizeInUse", 9, "int64"),
    ),
    "AlarmRequest": (one("action", 1, "int32"), one("memberID", 2, "uint64"), one("alarm", 3, "int32")),
    "AlarmMember": (one("memberID", 1, "uint64"), one("alarm", 2, "int32")),
    "AlarmResponse": (_HEADER, many("alarms", 2, _is("AlarmMember"))),
    "AuthenticateRequest": (one("name", 1, "string"), one("password", 2, "string")),
    "AuthenticateResponse": (_HEADER, one("token", 2, "string")),
}


def _pool() -> descriptors.Pool:
    pool = descriptors.Pool()
    pool.add(PACKAGE, _MESSAGES)
    return pool


_POOL: Final = _pool()


def _message(name: str) -> Any:
    return _POOL.message(_is(name))


Compare: Final[Any] = _message("Compare")
RequestOp: Final[Any] = _message("RequestOp")
RangeRequest: Final[Any] = _message("RangeRequest")
PutRequest: Final[Any] = _message("PutRequest")
DeleteRangeRequest: Final[Any] = _message("DeleteRangeRequest")
TxnRequest: Final[Any] = _message("TxnRequest")
CompactionRequest: Final[Any] = _message("CompactionRequest")
WatchRequest: Final[Any] = _message("WatchRequest")
WatchCreateRequest: Final[Any] = _message("WatchCreateRequest")
WatchProgressRequest: Final[Any] = _message("WatchProgressRequest")
WatchResponse: Final[Any] = _message("WatchResponse")
StatusRequest: Final[Any] = _message("StatusRequest")
AlarmRequest: Final[Any] = _message("AlarmRequest")
AuthenticateRequest: Final[Any] = _message("AuthenticateRequest")

# What is called by which path, and what answers it.
METHODS: Final[dict[Any, tuple[str, Any]]] = {
    RangeRequest: ("/etcdserverpb.KV/Range", _message("RangeResponse")),
    PutRequest: ("/etcdserverpb.KV/Put", _message("PutResponse")),
    DeleteRangeRequest: ("/etcdserverpb.KV/DeleteRange", _message("DeleteRangeResponse")),
    TxnRequest: ("/etcdserverpb.KV/Txn", _message("TxnResponse")),
    CompactionRequest: ("/etcdserverpb.KV/Compact", _message("CompactionResponse")),
    StatusRequest: ("/etcdserverpb.Maintenance/Status", _message("StatusResponse")),
    AlarmRequest: ("/etcdserverpb.Maintenance/Alarm", _message("AlarmResponse")),
    AuthenticateRequest: ("/etcdserverpb.Auth/Authenticate", _message("AuthenticateResponse")),
}
WATCH: Final = "/etcdserverpb.Watch/Watch"
