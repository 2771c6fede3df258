"""One run of the load generator against one server: a job goes in, a result comes out, with the server's CPU."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench import processes
from bench.prerequisites import build_loadgen
from bench.servers import ACCOUNT, KEY

if TYPE_CHECKING:
    from bench.servers import Server

# Seeding tens of millions takes hours; the generator itself notices a silent server.
GENERATOR_SECONDS_MAX = 6 * 3600


class WrongAnswerError(Exception):
    """A server gave a wrong answer, so the run has no figures."""


@dataclass(frozen=True)
class Job:
    """The job that loadgen/job.go reads, which describes the fields."""

    table: str
    mix: dict[str, int]
    keys: str = "uniform"
    query: str = ""
    unique: str = ""
    apart: bool = False
    entities: int = 0
    connections: int = 16
    seed: int = 1
    warmup: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    walks: int = 0
    inserts: int = 0
    shapes: int = 1
    data: str = ""
    matches: str = ""
    expect_entities: int = -1
    company: Job | None = None


@dataclass(frozen=True)
class Measured:
    """What one run measured. Latencies in microseconds, CPU in microseconds per request.

    Latency and cost are per request, even if the operation is a walk of many requests. others_cores is how many cores
    everything else on the machine kept busy during the run. With company, the server's CPU is divided among all
    answers; company_per_second and company_p99 are the company's own.
    """

    per_second: float
    p50: float
    p99: float
    p999: float
    max: float
    requests: int
    server_cpu: float
    server_cores: float
    generator_cpu: float
    generator_share: float
    others_cores: float
    megabytes_per_second: float
    operations: dict[str, dict[str, float]] = field(default_factory=dict)
    first_page_p50: float | None = None
    last_pages_p50: float | None = None
    entities_per_second: float = 0.0
    company_per_second: float | None = None
    company_p99: float | None = None


def run(server: Server, job: Job) -> Measured:
    tree = server.tree()
    before, busy_before, start = processes.cpu_seconds(tree), processes.busy(), time.monotonic()
    result = generate(server, job)
    used = processes.cpu_seconds(tree) - before
    others = processes.busy() - busy_before - used - result["generator_seconds_all"]
    wall = time.monotonic() - start
    elapsed, requests = result["elapsed"], max(result["requests"], 1)
    # A walk is one operation, however many pages the server makes of it.
    operations = job.walks * job.connections or result["requests"]
    server_cpu = used / max(result["requests_all"], 1)
    first, last, company = result["first_page"], result["last_pages"], result["company"]
    answers = result["requests"] + (company["requests"] if company else 0)
    return Measured(
        per_second=operations / elapsed,
        p50=result["latency"]["p50"],
        p99=result["latency"]["p99"],
        p999=result["latency"]["p999"],
        max=result["latency"]["max"],
        requests=result["requests"],
        server_cpu=1e6 * server_cpu,
        server_cores=server_cpu * answers / elapsed,
        generator_cpu=1e6 * result["generator_seconds"] / requests,
        generator_share=result["generator_seconds"] / elapsed,
        others_cores=max(others, 0.0) / wall,
        megabytes_per_second=result["bytes_in"] / elapsed / 1e6,
        operations=result["operations"],
        first_page_p50=first and first["p50"],
        last_pages_p50=last and last["p50"],
        entities_per_second=result["entities"] / elapsed,
        company_per_second=company and company["requests"] / elapsed,
        company_p99=company and company["p99"],
    )


def document_of(job: Job) -> dict[str, Any]:
    return asdict(job) | {
        "mix": [{"operation": name, "weight": weight} for name, weight in job.mix.items()],
        "company": job.company and document_of(job.company),
    }


def generate(server: Server, job: Job) -> dict[str, Any]:
    document = document_of(job) | {
        "address": server.address,
        "base_path": server.base_path,
        "account": ACCOUNT,
        "key": KEY,
        "constant": server.constant,
    }
    finished = subprocess.run(
        [str(build_loadgen())],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=GENERATOR_SECONDS_MAX,
        check=False,
    )
    if finished.returncode != 0:
        raise WrongAnswerError(f"{server.name}: {finished.stderr.strip()}")
    result: dict[str, Any] = json.loads(finished.stdout)
    if result["errors"]:
        samples = "; ".join(result["error_samples"])
        raise WrongAnswerError(
            f"{server.name}: {result['errors']} wrong answers, among them: {samples}"
        )
    return result
