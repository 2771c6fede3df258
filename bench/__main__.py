"""`python -m bench [WORKLOAD ...]` starts the servers, plays the rounds, prints the figures and writes them as JSON."""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import disk, filter_in_sql, generator, growth, machine, paths, servers
from bench.comparison import comparison
from bench.options import how_many, seconds, seconds_or_none, several
from bench.prerequisites import PrerequisiteError, build_loadgen, install_azurite
from bench.report import summary
from bench.rounds import Schedule, Seeded, play
from bench.workloads import (
    BY_NAME,
    GROUPS,
    GROWTH,
    GROWTH_SIZES,
    NOTHING,
    WITH_GROWTH,
    WORKLOADS,
    named,
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    rows = "\n".join(f"  {workload.name:<24}{workload.title}" for workload in WORKLOADS)
    rows += f"\n  {GROWTH:<24}memory under load and start-up time by number of entities"
    rows += "\n\nor several at once:\n" + "\n".join(
        f"  {name:<24}{', '.join(each.name for each in group)}" for name, group in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Tablestone, Azurite and the bare HTTP server under the same load.",
        epilog=f"workloads:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workloads",
        nargs="*",
        default=["floors"],
        metavar="WORKLOAD",
        help="workloads from the list below; default: floors",
    )
    parser.add_argument(
        "--servers",
        default="tablestone,azurite,floor",
        help="default: %(default)s; tablestone:1 and floor:1 have one worker, and so on",
    )
    parser.add_argument("--rounds", type=how_many, default=5, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=seconds, default=1.0, help="per round; default: %(default)s"
    )
    parser.add_argument(
        "--warmup", type=seconds_or_none, default=0.5, help="seconds; default: %(default)s"
    )
    parser.add_argument("--connections", type=how_many, default=16, help="default: %(default)s")
    parser.add_argument(
        "--sizes",
        type=several,
        default=GROWTH_SIZES,
        metavar="N,N",
        help=f"entities in each part of {GROWTH}",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the keys; default: %(default)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the figures")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier run's figures")
    options = parser.parse_args(given)
    known = {*BY_NAME, *GROUPS, GROWTH}
    unknown = [name for name in options.workloads if name not in known]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; --help lists them")
    options.servers = options.servers.split(",")
    if len(set(options.servers)) < len(options.servers):
        parser.error(f"a server is named twice: {','.join(options.servers)}")
    unknown = [name for name in options.servers if not servers.is_known(name)]
    if unknown:
        parser.error(
            f"no such server: {', '.join(unknown)}; there are {', '.join(servers.STARTERS)}"
        )
    if options.compare and not options.compare.exists():
        parser.error(f"no such file: {options.compare}")
    return options


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    options = arguments()
    # Read first: --json may name the same file.
    earlier = json.loads(options.compare.read_text()) if options.compare else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        build_loadgen()
        if servers.AZURITE in options.servers:
            install_azurite()
        run = bench(options)
    except PrerequisiteError as missing:
        tell(str(missing))
        return 2
    except generator.WrongAnswerError as failure:
        tell(f"the run failed. {failure}")
        return 1
    print(summary(run))
    if earlier:
        print("\n" + comparison(earlier, run))
    target = options.json or paths.RESULTS / f"{run['started'].replace(':', '')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(run, indent=1))
    print(f"\nfigures written to {target}")
    return 0


def bench(options: argparse.Namespace) -> dict[str, Any]:
    schedule = Schedule(
        options.rounds, options.seconds, options.warmup, options.connections, options.seed
    )
    shutil.rmtree(paths.DATA, ignore_errors=True)
    run: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.machine(),
        "versions": machine.versions(options.servers),
        "schedule": asdict(schedule),
        "flushes_per_second": disk.flushes_per_second(paths.DATA),
        "workloads": {},
    }
    running: list[servers.Server] = []
    try:
        for name in options.servers:
            running.append(servers.start(name, paths.DATA / name))
            tell(f"{name} is ready at http://{running[-1].address}{running[-1].base_path}")
        run["generator_alone"] = generator_alone(running, schedule)
        seeded = Seeded(tell)
        for workload in named(options.workloads):
            tell(workload.title)
            outcomes = play(workload, running, seeded, schedule, tell)
            run["workloads"][workload.name] = {
                "title": workload.title,
                "factor": workload.factor,
                "entities_per_operation": workload.entities_per_operation,
                "company": workload.company and workload.company.title,
                "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()},
            }
        run["loaded"] = [asdict(load) for load in seeded.loaded]
        for server in running:
            server.stop()
        if NOTHING.name in run["workloads"]:
            run["filter_to_by_hand"] = filter_in_sql.share_of_by_hand()
        if WITH_GROWTH & set(options.workloads):
            run[GROWTH] = {
                server.name: growth.measure(server.name, options.sizes, schedule, tell)
                for server in running
                if not server.constant
            }
    finally:
        for server in running:
            server.stop()
        shutil.rmtree(paths.DATA, ignore_errors=True)
    return run


def generator_alone(running: list[servers.Server], schedule: Schedule) -> dict[str, Any] | None:
    """Show that the generator is not the bottleneck: its figures against the fastest server."""
    for server in running:
        if server.constant:
            job = generator.Job(
                table="BenchAlone",
                mix={"get": 1},
                entities=1000,
                connections=schedule.connections,
                warmup=schedule.warmup,
                seconds=schedule.seconds,
            )
            return asdict(generator.run(server, job))
    return None


if __name__ == "__main__":
    sys.exit(main())
