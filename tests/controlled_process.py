"""A server under control in its own process, as a test in any language starts it, and a client of its control API.

The client checks every exchange against the OpenAPI document. It knows `tablestone serve --control`, and nothing of
what is behind it.
"""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator

from server_process import COMMAND, clean_environment

STOP_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 60.0


class Ready(NamedTuple):
    """A server that is ready: its process, and the members of the line that it printed."""

    process: subprocess.Popen[bytes]
    said: dict[str, Any]

    @property
    def connection_string(self) -> str:
        return str(self.said["accounts"][0]["connection_string"])


@contextmanager
def served(*arguments: str, errors: Path | None = None) -> Iterator[Ready]:
    """`tablestone serve --print json` on the memory engine, until the block ends; `errors` gets its standard error."""
    command = [COMMAND] if Path(COMMAND).exists() else [sys.executable, "-m", "tablestone"]
    always = ["serve", "--engine", "memory", "--port", "0", "--print", "json"]
    with (errors or Path("/dev/null")).open("wb") as written:
        process = subprocess.Popen(
            [*command, *always, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            env=clean_environment(),
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"it ended with status {process.wait(STOP_SECONDS_MAX)}"
        yield Ready(process, json.loads(line))
    finally:
        process.terminate()
        rest = process.stdout.read()
        process.stdout.close()
        assert process.wait(STOP_SECONDS_MAX) == 0
    assert rest == b""


class Answer(NamedTuple):
    """The answer of the control API: its JSON, or its bytes."""

    status: int
    value: Any


class ControlClient:
    """A client of the API. It fails on an exchange that the OpenAPI document does not describe."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.document: dict[str, Any] = {}
        self.document = self.send("GET", "/openapi.json", None, {}).value

    def ask(
        self, method: str, path: str, members: Any = None, body: bytes = b"", form: str = ""
    ) -> Answer:
        """Send members as JSON, or another kind of body."""
        headers = {}
        if members is not None:
            body, form = json.dumps(members).encode(), "application/json"
        if form:
            headers["content-type"] = form
        answer = self.send(method, path, body or None, headers)
        described = self._operation(method, urlsplit(path).path)
        if described is None:
            assert answer.status in {404, 405}
            return answer
        responses = described["responses"]
        if answer.status >= 400:
            self._require(responses["default"], answer.value)
            return answer
        (status,) = set(responses) - {"default"}
        assert answer.status == int(status), answer
        self._require(responses[status], answer.value)
        if form:
            content = described["requestBody"]["content"]
            assert form in content, f"{method} {path} takes {', '.join(content)}"
            if members is not None:
                self._validate(content[form]["schema"], members)
        else:
            assert not described.get("requestBody", {}).get("required", False)
        return answer

    def done(self, method: str, path: str, members: Any = None) -> Any:
        """The value of an answer that is no error."""
        answer = self.ask(method, path, members)
        assert answer.status < 400, answer
        return answer.value

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Send a request without checking it against the document."""
        request = urllib.request.Request(
            self.address + path, data=body, headers=headers, method=method
        )
        if "content-type" not in headers:
            request.add_unredirected_header("Content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                return _answer(answer.status, answer)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error)

    def operations(self) -> set[tuple[str, str]]:
        """The method and the path of every operation in the document."""
        return {
            (method.upper(), path)
            for path, operations in self.document["paths"].items()
            for method in operations
        }

    def template(self, method: str, path: str) -> str | None:
        """The document's path template that this path matches."""
        found = [
            each
            for verb, each in self.operations()
            if verb == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path)
        ]
        return min(found, key=lambda each: each.count("{")) if found else None

    def _operation(self, method: str, path: str) -> Any:
        template = self.template(method, path)
        return None if template is None else self.document["paths"][template][method.lower()]

    def _require(self, response: Any, value: Any) -> None:
        content = response.get("content", {})
        if not content:
            assert value is None
        elif isinstance(value, bytes):
            assert list(content) == ["application/octet-stream"]
        else:
            self._validate(content["application/json"]["schema"], value)

    def _validate(self, schema: Any, value: Any) -> None:
        # The schema's references point into the document.
        Draft202012Validator(schema | {"components": self.document["components"]}).validate(value)


def _answer(status: int, answer: Any) -> Answer:
    body: bytes = answer.read()
    if answer.headers.get("content-type") == "application/octet-stream":
        return Answer(status, body)
    return Answer(status, json.loads(body) if body else None)
