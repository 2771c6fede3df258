"""The operations of the control API: each takes the parts of a request and returns the value that its answer holds.

Knows the storage with its faults, its clock and its last requests. Knows neither HTTP nor the paths of the API; the
types of the members have been checked (`control_routes`). Runs on the loop of the storage.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablestone import __version__
from tablestone.configuration import DEVELOPMENT_ACCOUNT_NAME
from tablestone.testing.expectations import Budget, judge
from tablestone.testing.fault_rules import Rule, fixed, long_tail, normal
from tablestone.testing.recorded_requests import REQUESTS_KEPT_MAX, RecordedRequest
from tablestone.testing.seeds import SeedRefused, rows_of
from tablestone.testing.state import Snapshot, SnapshotUnreadable, bytes_of, contents_of
from tablestone.testing.storage import StorageAccount
from tablestone.testing.storage_service import StorageService

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
SEED_FILES: Final = {
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "text/csv": ".csv",
}
"""The forms of a seed besides JSON, with the suffix of such a file."""
LATENCIES: Final = {"fixed": fixed, "normal": normal, "long_tail": long_tail}
SHOWN: Final = (
    *("number", "method", "path", "account", "operation", "table", "plan", "filter", "partition"),
    *("status", "error", "fault", "rows_read", "rows_returned"),
)
"""The parts of a request that the API shows."""


class NotThere(Exception):
    """There is no account, snapshot or rule of this name; the text is one sentence."""


class Asked(NamedTuple):
    """The parts of a request: names in its path, its query, the members of its JSON, or its body as it is."""

    path: dict[str, str]
    query: dict[str, Any]
    members: dict[str, Any]
    body: bytes
    content_type: str


class ControlledStorage:
    """A storage, the address that it serves on, and the snapshots that were taken of it."""

    def __init__(self, service: StorageService) -> None:
        self.service = service
        self.address = ""
        self.snapshots: dict[str, Snapshot] = {}
        self._taken = 0

    def account(self, name: str, key: str) -> dict[str, str]:
        account = StorageAccount(name, key, f"{self.address}/{name}")
        return {
            "name": name,
            "key": key,
            "endpoint": account.endpoint,
            "connection_string": account.connection_string,
        }

    def keep(self, snapshot: Snapshot) -> str:
        """Keep a snapshot, and return its id."""
        self._taken += 1
        self.snapshots[str(self._taken)] = snapshot
        return str(self._taken)

    def snapshot(self, asked: Asked) -> Snapshot:
        """The snapshot that the path names."""
        found = self.snapshots.get(asked.path["id"])
        if found is None:
            raise NotThere(f"There is no snapshot {asked.path['id'][:40]!r}.")
        return found


async def about(storage: ControlledStorage, _asked: Asked) -> Any:
    return {"version": __version__, "address": storage.address, "openapi": "/openapi.json"}


async def list_accounts(storage: ControlledStorage, _asked: Asked) -> Any:
    return {"accounts": await storage.service.account_names()}


async def create_account(storage: ControlledStorage, asked: Asked) -> Any:
    return storage.account(*await storage.service.create_account(asked.members.get("name")))


async def delete_account(storage: ControlledStorage, asked: Asked) -> None:
    name = asked.path["name"]
    if not await storage.service.accounts.exists(name):
        raise NotThere(f"There is no account {name[:40]!r} that was created here.")
    await storage.service.accounts.delete(name, with_tables=True)


async def reset(storage: ControlledStorage, asked: Asked) -> None:
    account, table = asked.members.get("account"), asked.members.get("table")
    if table is not None and account is None:
        account = DEVELOPMENT_ACCOUNT_NAME
    await storage.service.reset(account, table)


async def seed(storage: ControlledStorage, asked: Asked) -> Any:
    account = asked.query.get("account", DEVELOPMENT_ACCOUNT_NAME)
    await storage.service.require_account(account)
    table = asked.query.get("table")
    if asked.content_type == JSON:
        if table is not None:
            raise SeedRefused("In a seed of JSON the members are the tables: leave out table.")
        rows, tables = list(rows_of(asked.members, None)), list(asked.members)
    else:
        if table is None:
            raise SeedRefused(f"A seed of {asked.content_type} needs the table: ?table=Orders.")
        tables = [table]
        with tempfile.TemporaryDirectory(prefix="tablestone-") as directory:
            file = Path(directory, "seed").with_suffix(SEED_FILES[asked.content_type])
            file.write_bytes(asked.body)
            try:
                rows = list(rows_of(file, table))
            except SeedRefused as refused:
                told = str(refused).replace(f"{file}, ", "").replace(str(file), "The body")
                raise SeedRefused(told) from None
    return {"stored": await storage.service.state.seed(account, rows, tables)}


async def dump(storage: ControlledStorage, asked: Asked) -> Any:
    account = asked.query.get("account", DEVELOPMENT_ACCOUNT_NAME)
    await storage.service.require_account(account)
    return await storage.service.state.dump(account)


async def take_snapshot(storage: ControlledStorage, asked: Asked) -> Any:
    if asked.content_type == BYTES:
        try:
            return {"id": storage.keep(Snapshot(contents_of(asked.body)))}
        except SnapshotUnreadable as unreadable:
            raise SeedRefused(str(unreadable)) from None
    return {"id": storage.keep(storage.service.state.snapshot())}


async def list_snapshots(storage: ControlledStorage, _asked: Asked) -> Any:
    return {"snapshots": list(storage.snapshots)}


async def snapshot_bytes(storage: ControlledStorage, asked: Asked) -> bytes:
    return bytes_of(storage.snapshot(asked).contents)


async def restore_snapshot(storage: ControlledStorage, asked: Asked) -> None:
    storage.service.state.restore(storage.snapshot(asked))


async def delete_snapshot(storage: ControlledStorage, asked: Asked) -> None:
    storage.snapshot(asked)
    del storage.snapshots[asked.path["id"]]


async def list_faults(storage: ControlledStorage, _asked: Asked) -> Any:
    faults = storage.service.faults
    seconds = faults.secondary.seconds_behind
    return {
        "seed": faults.seed,
        "rules": [json_of_rule(number, rule) for number, rule in faults.numbered.items()],
        "secondary": {"seconds": None if math.isinf(seconds) else seconds},
    }


async def add_fault(storage: ControlledStorage, asked: Asked) -> Any:
    faults = storage.service.faults
    members = asked.members
    if isinstance(members.get("latency"), dict):
        ((name, numbers),) = members["latency"].items()
        members = members | {"latency": LATENCIES[name](**numbers)}
    faults.add(**members)
    return json_of_rule(*list(faults.numbered.items())[-1])


async def remove_fault(storage: ControlledStorage, asked: Asked) -> None:
    faults = storage.service.faults
    found = {str(number): rule for number, rule in faults.numbered.items()}.get(asked.path["id"])
    if found is None:
        raise NotThere(f"There is no rule {asked.path['id'][:40]!r}.")
    faults.remove(found)


async def clear_faults(storage: ControlledStorage, asked: Asked) -> None:
    storage.service.faults.clear(asked.query.get("seed", 0))


async def set_azure_like(storage: ControlledStorage, asked: Asked) -> Any:
    storage.service.faults.azure_like(asked.members.get("seed", 1))
    return await list_faults(storage, asked)


async def set_secondary(storage: ControlledStorage, asked: Asked) -> None:
    seconds = asked.members["seconds"]
    storage.service.faults.secondary.follow(math.inf if seconds is None else seconds)


async def show_clock(storage: ControlledStorage, _asked: Asked) -> Any:
    clock = storage.service.clock
    return {
        "now": f"{clock.now().replace(tzinfo=None).isoformat('T', 'microseconds')}Z",
        "rate": clock.rate,
    }


async def freeze_clock(storage: ControlledStorage, asked: Asked) -> Any:
    at = asked.members.get("at")
    storage.service.clock.freeze(None if at is None else datetime.fromisoformat(at))
    return await show_clock(storage, asked)


async def set_clock(storage: ControlledStorage, asked: Asked) -> Any:
    storage.service.clock.set(datetime.fromisoformat(asked.members["to"]))
    return await show_clock(storage, asked)


async def advance_clock(storage: ControlledStorage, asked: Asked) -> Any:
    storage.service.clock.advance(**asked.members)
    return await show_clock(storage, asked)


async def tick_clock(storage: ControlledStorage, asked: Asked) -> Any:
    storage.service.clock.tick(asked.members.get("rate", 1.0))
    return await show_clock(storage, asked)


async def reset_clock(storage: ControlledStorage, asked: Asked) -> Any:
    storage.service.clock.reset()
    return await show_clock(storage, asked)


async def list_requests(storage: ControlledStorage, asked: Asked) -> Any:
    requests = storage.service.requests
    since = asked.query.get("since", 0)
    return {"count": requests.count, "requests": [_shown(each) for each in requests.since(since)]}


async def judge_cost(storage: ControlledStorage, asked: Asked) -> Any:
    members = dict(asked.members)
    since = members.pop("since", 0)
    budget = Budget(**members)
    made = [
        each
        for each in storage.service.requests.since(since)
        if budget.account in (None, each.account)
    ]
    complaints = judge(budget, made)
    if storage.service.requests.count - since > REQUESTS_KEPT_MAX:
        complaints.append(
            f"more than {REQUESTS_KEPT_MAX} requests since then: only the last ones were judged"
        )
    return {"complaints": complaints}


def json_of_rule(number: int, rule: Rule) -> dict[str, Any]:
    """The parts of a rule that are not as usual, and its number."""
    shown: dict[str, Any] = {"id": str(number)}
    for part in fields(rule):
        value = getattr(rule, part.name)
        if value in (part.default, {}):
            continue
        if isinstance(value, fixed | normal | long_tail):
            value = {type(value).__name__: asdict(value)}
        shown[part.name] = value
    return shown


def _shown(record: RecordedRequest) -> dict[str, Any]:
    return {name: getattr(record, name) for name in SHOWN}
