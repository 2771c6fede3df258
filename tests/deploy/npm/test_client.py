"""The client for tests: its types are those of the control API, the guide's tests pass, and it says what is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from controlled_process import ControlClient, served
from deploy.deployed import DEPLOY
from deploy.npm.packed import run
from sdk.test_interchange import skip_unless_prepared

pytestmark = pytest.mark.slow

SAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": True}


def sample(schema: dict[str, Any]) -> Any:
    """A value of a schema of the control API."""
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: sample(each) for name, each in schema["properties"].items()}
    if schema.get("type") == "object":
        return {"name": sample(schema["additionalProperties"])}
    return SAMPLES[schema["type"]]


def members(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The members that a POST takes."""
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    found: dict[str, Any] = content["schema"]["properties"]
    return found


def declared(document: dict[str, Any]) -> list[tuple[str, Any]]:
    """Types of the client, each with a value that has every member of the API.

    TypeScript finds a member too many, and with `Required` one too few.
    """
    schemas = document["components"]["schemas"]
    fault = members(document, "/faults")
    cost = members(document, "/cost")
    latencies = fault.pop("latency")["oneOf"]
    return [
        ("Required<Omit<Fault, 'latency'>>", sample({"properties": fault})),
        *(("Latency", sample(each)) for each in latencies),
        *(("Fault", {"reset": each}) for each in fault["reset"]["enum"]),
        *(("Fault", {"share": each}) for each in fault["share"]["enum"]),
        ("Required<Duration>", sample({"properties": members(document, "/clock/advance")})),
        ("Required<Limits> & { since: number }", sample({"properties": cost})),
        ("RecordedRequest", sample(schemas["Request"])),
        ("Account", sample(schemas["Account"])),
    ]


def test_the_types_are_those_of_the_control_api(project: Path, tmp_path: Path) -> None:
    described = json.loads((DEPLOY / "npm" / "package.json").read_text("utf-8"))
    version = described["devDependencies"]["typescript"]
    fetched = run("npm", "install", "--no-save", f"typescript@{version}", directory=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    compiler = tmp_path / "node_modules" / ".bin" / "tsc"
    with served("--control", "0") as ready:
        document = ControlClient(str(ready.said["control"])).document
    lines = [
        'import type { Account, Duration, Fault, Latency, Limits, RecordedRequest } from "tablestone";'
    ]
    lines += [
        f"export const each{number}: {name} = {json.dumps(value)};"
        for number, (name, value) in enumerate(declared(document))
    ]
    lines.append("export const planted: Fault = { retryAfter: 1 };")
    (project / "types.ts").write_text("\n".join(lines), encoding="utf-8")
    options = ("--noEmit", "--strict", "--module", "node16", "--target", "es2022", "--types", "")
    ended = run(compiler, *options, "types.ts", directory=project)
    (error,) = re.findall(r"^\S.*error TS.*", ended.stdout, re.MULTILINE)
    assert "retryAfter" in error


def test_the_tests_of_the_guide(project: Path) -> None:
    skip_unless_prepared("javascript")
    ended = run("node", "--test", "--test-reporter=tap", "node/orders.test.mjs", directory=project)
    assert ended.returncode == 0, ended.stdout
    assert "\n# pass 5\n" in ended.stdout


def evaluate(project: Path, program: str, **environment: str) -> list[str]:
    """What a program with the client prints. It must end by itself, and with 0."""
    imports = 'import { Tablestone } from "tablestone";\n'
    ended = run(
        *("node", "--input-type=module", "--eval", imports + program),
        directory=project,
        environment=environment,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_what_is_refused_is_an_error(project: Path) -> None:
    program = """
    const server = await Tablestone.start();
    const account = await server.createAccount("anna");
    for (const refused of [
      () => Tablestone.start("--port", "x"),
      () => server.addFault({ operation: "Insert" }),
      () => server.createAccount("anna"),
      () => server.within({ requests: 0 }, () => fetch(account.endpoint)),
      () => server.within({ requests: 1 }, () => fetch(account.endpoint)),
    ]) await refused().then(() => console.log("nothing"), (error) => console.log(error.message.split("\\n")[0]));
    """
    start, fault, account, over, within = evaluate(project, program)
    assert start == "tablestone: --port must be a number from 0 to 65535, not 'x'."
    assert fault.startswith("operation is one of CountTableExpiry, ")
    assert account == "There is an account anna already."
    assert over.startswith("1 request")
    assert within == "nothing"


def test_several_at_once_and_stopped_twice(project: Path) -> None:
    program = """
    const servers = await Promise.all([1, 2, 3].map(() => Tablestone.start()));
    console.log(new Set(servers.map((each) => each.control)).size);
    for (const each of servers) await Promise.all([each.stop(), each.stop()]).then(() => each.stop());
    for (const each of servers) await each.requests().catch((error) => console.log(error.message));
    """
    servers, *after_the_end = evaluate(project, program)
    assert servers == "3"
    assert len(after_the_end) == 3
    assert all(
        each.endswith(" does not answer: it was stopped, or has ended.") for each in after_the_end
    )


def test_the_settings_of_another_server_do_not_reach_it(project: Path) -> None:
    program = """
    const server = await Tablestone.start();
    console.log((await server.ask("GET", "/accounts")).accounts.join());
    """
    ours = {
        "TABLESTONE_ADMIN": "0",
        "TABLESTONE_ACCOUNT": "mine:a2V5",
        "AZURITE_ACCOUNTS": "x:a2V5",
    }
    assert evaluate(project, program, **ours) == ["devstoreaccount1"]
