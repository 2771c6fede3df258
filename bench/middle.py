"""Micro-benchmarks of the pure functions: parse and plan a filter, decode an entity, encode a page, check a signature.

Started as `python -m bench.middle` (pyperf's options, such as `--fast` and `-o before.json`, follow; `python -m pyperf
compare_to` sets two runs side by side). Needs `pip install '.[bench]'`; no server, no engine, no disk.
"""

import sys

from bench.in_process import PREFIX, entity, request
from tablestone.auth.account import Account
from tablestone.auth.shared_key import require_shared_key
from tablestone.clock import system_clock
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.model.entity_json import entity_renderer
from tablestone.query.filter_parser import parse_filter
from tablestone.query.plan import Plan, plan_query
from tablestone.wire.json_payload import JsonWriter, decode_entity
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import MetadataLevel

FILTER = (
    "PartitionKey eq 'EWR' and RowKey ge '2013-01-01T00' and RowKey lt '2013-02-01T00' "
    "and (temperature gt 20.5 or humidity le 40) and not (location eq 'roof')"
)
BODY = entity(1).encode()
PAGE = 1_000
ACCOUNT = Account(DEVELOPMENT_ACCOUNT.name, DEVELOPMENT_ACCOUNT.keys)


def parse_and_plan() -> Plan:
    return plan_query(parse_filter(FILTER))


def encode_page(writer: JsonWriter, stored: list[bytes]) -> bytes:
    listed = stored
    if not writer.lists_as_stored(None):
        listed = [writer.listed("bench", each, None) for each in stored]
    return writer.entities("bench", listed, None)


def signed_request() -> tuple[RawRequest, bytes]:
    """A request of `bench.in_process`, and the part of its Authorization after the scheme."""
    target = "bench(PartitionKey='p',RowKey='r')"
    lines = request("GET", target).split(b"\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
    credentials = headers[b"authorization"].partition(b" ")[2]
    return RawRequest("GET", f"{PREFIX}{target}".encode(), b"", headers), credentials


def main() -> None:
    try:
        import pyperf  # noqa: PLC0415 - its absence is an answer, and the rest of the bench does without it
    except ImportError:
        print(
            "bench.middle needs the package pyperf: pip install '.[bench]' first.", file=sys.stderr
        )
        sys.exit(2)
    runner = pyperf.Runner(program_args=("-m", "bench.middle"))
    runner.argparser.set_defaults(inherit_environ=["PYTHONPATH"])
    decoded = decode_entity(BODY, None)
    stored = entity_renderer(decoded.key, decoded.members.values())(system_clock())
    writer = JsonWriter(f"http://127.0.0.1{PREFIX}", ACCOUNT.name, MetadataLevel.MINIMAL)
    signed, credentials = signed_request()
    now = system_clock()
    check = (signed, ACCOUNT, b"sharedkey", credentials, None, now)
    require_shared_key(*check)
    runner.bench_func("parse and plan a filter of six comparisons", parse_and_plan)
    runner.bench_func("decode an entity of ten properties", decode_entity, BODY, None)
    runner.bench_func("encode a page of 1,000 entities", encode_page, writer, [stored] * PAGE)
    runner.bench_func("check a SharedKey signature", require_shared_key, *check)


if __name__ == "__main__":
    main()
