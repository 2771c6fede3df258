"""A run of clock steps: writers write to their entities through every worker while the machine's clock is set.

The clock steps by up to an hour, forward and back, while the server runs and between two starts. Every write of an
entity must get a later ETag than the one before, and every read must show the Timestamp of the last write. The seed
makes all choices.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from server_process import ServerProcess, start_server
from stress.clock_steps.wall_clock import STEPPED, WallClock
from stress.crash.writers import (
    ETAG_OF_PART,
    TABLE,
    Connection,
    UnexpectedAnswerError,
    entity_path,
    part_of_batch,
)
from tablestone.model.etag import parse_etag

WRITERS: Final = 4
ROWS: Final = 8
"""The entities of a writer."""
CONNECTIONS: Final = 4
"""The connections of a writer, which the supervisor spreads over the workers."""
STEPS_OF_A_START: Final = 10
STEP_SECONDS_MAX: Final = 3600
FAR_SECONDS_MAX: Final = 3 * 3600
"""How far the clock may be ahead of the real one, or behind it."""
WRITES_BETWEEN_STEPS_MAX: Final = 60
START_SECONDS_MAX: Final = 120
PATIENCE_SECONDS: Final = 180


class Writer(threading.Thread):
    """Writes to the entities of its own partition, again and again. `etags` has the latest ones, by row."""

    def __init__(self, clock: WallClock, partition: str, etags: dict[int, str]) -> None:
        super().__init__(daemon=True)
        self._clock = clock
        self._partition = partition
        self._etags = etags
        self._random = Random(partition)
        self._connections: list[Connection] = []
        self.is_over = threading.Event()
        self.written = threading.Semaphore(0)
        self.writes = 0
        self.reads = 0
        self.complaints: list[str] = []
        self.unexpected: Exception | None = None

    def begin(self, server: ServerProcess) -> None:
        self._connections = [
            Connection(server, now=self._clock.now) for _number in range(CONNECTIONS)
        ]
        self.start()

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                ahead = self._clock.ahead_ns
                try:
                    self._send_next(self._random.choice(self._connections))
                except UnexpectedAnswerError as error:
                    # A request signed before a step has a date that is too far off after it.
                    if ahead == self._clock.ahead_ns or "AuthenticationFailed" not in str(error):
                        raise
                else:
                    self.written.release()
        except Exception as error:  # noqa: BLE001 - the run reports it, not the thread
            self.unexpected = error
        finally:
            for connection in self._connections:
                connection.http.close()

    def _send_next(self, connection: Connection) -> None:
        draw = self._random.random()
        if draw < 0.2:
            self._read(connection, self._random.randrange(ROWS))
        elif draw < 0.4:
            self._transact(
                connection, self._random.sample(range(ROWS), self._random.randint(2, ROWS))
            )
        else:
            self._write(connection, self._random.randrange(ROWS))

    def _request(self, row: int) -> tuple[str, str, bytes, dict[str, str]]:
        """A write of this entity: a replacement or a merge, conditional on its last ETag or not."""
        condition = {}
        if row in self._etags and self._random.random() < 0.5:
            condition = {"If-Match": self._etags[row]}
        body = json.dumps({"number": self._random.getrandbits(30)}).encode()
        method = self._random.choice(("PUT", "PATCH"))
        return method, entity_path(self._partition, str(row)), body, condition

    def _write(self, connection: Connection, row: int) -> None:
        method, path, body, condition = self._request(row)
        response, _ = connection.send(method, path, body, expected=204, headers=condition)
        self._note(row, str(response.getheader("ETag")))

    def _transact(self, connection: Connection, rows: list[int]) -> None:
        parts = []
        for row in rows:
            method, path, body, condition = self._request(row)
            parts.append(part_of_batch(method, connection.base + path, body, condition))
        answer = connection.send_batch(parts)
        for row, etag in zip(rows, ETAG_OF_PART.findall(answer), strict=True):
            self._note(row, etag.decode())

    def _note(self, row: int, etag: str) -> None:
        self.writes += 1
        before = self._etags.get(row)
        if before is not None and parse_etag(etag) <= parse_etag(before):
            self.complaints.append(f"{self._partition}/{row}: {etag} follows {before}")
        self._etags[row] = etag

    def _read(self, connection: Connection, row: int) -> None:
        if row not in self._etags:
            return
        self.reads += 1
        _, body = connection.send("GET", entity_path(self._partition, str(row)), expected=200)
        found = json.loads(body)
        timestamp = found["Timestamp"].replace(":", "%3A")
        if found["odata.etag"] != self._etags[row] or timestamp not in found["odata.etag"]:
            self.complaints.append(
                f"{self._partition}/{row}: read {found['odata.etag']} of {found['Timestamp']},"
                f" written {self._etags[row]}"
            )


class Run:
    """A run on a data directory."""

    def __init__(self, directory: Path, seed: str) -> None:
        self._data = directory / "data"
        self._clock = WallClock(directory / "clock")
        self._random = Random(seed)
        self._etags: list[dict[int, str]] = [{} for _number in range(WRITERS)]
        self.steps = 0
        self.starts = 0
        self.writes = 0
        self.reads = 0

    def __str__(self) -> str:
        return (
            f"{self.steps} steps of the clock in {self.starts} starts of the server,"
            f" {self.writes} writes, {self.reads} reads"
        )

    def problems(self, steps: int) -> Iterator[str]:
        """Step the clock that many times; returns the writes and reads that are wrong."""
        while self.steps < steps:
            server = start_server(
                self._data,
                f"--workers={self._random.choice((1, 2, 3))}",
                command=STEPPED,
                environment=self._clock.environment,
                ready_seconds=START_SECONDS_MAX,
            )
            self.starts += 1
            try:
                if self.starts == 1:
                    with Connection(server, now=self._clock.now) as connection:
                        body = f'{{"TableName":"{TABLE}"}}'.encode()
                        connection.send("POST", "/Tables", body, expected=201)
                yield from self._serve(server, min(steps - self.steps, STEPS_OF_A_START))
                server.stop()
            finally:
                server.kill()
            self._step()  # while no server runs

    def _serve(self, server: ServerProcess, steps: int) -> Iterator[str]:
        writers = [
            Writer(self._clock, f"writer-{number}", etags)
            for number, etags in enumerate(self._etags)
        ]
        for writer in writers:
            writer.begin(server)
        for _ in range(steps):
            self._wait(writers)
            self._step()
        self._wait(writers)
        for writer in writers:
            writer.is_over.set()
        for writer in writers:
            writer.join(PATIENCE_SECONDS)
            if writer.unexpected is not None:
                raise writer.unexpected
            self.writes += writer.writes
            self.reads += writer.reads
            yield from writer.complaints

    def _wait(self, writers: list[Writer]) -> None:
        """Let every writer write at least once, and one of them a few more times."""
        for writer in writers:
            writer.written.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(self._random.randint(1, WRITES_BETWEEN_STEPS_MAX)):
            writers[0].written.acquire(timeout=PATIENCE_SECONDS)

    def _step(self) -> None:
        """Half of the steps are a whole hour."""
        ahead = self._clock.ahead_ns / 1e9
        step = self._random.choice((STEP_SECONDS_MAX, self._random.uniform(0, STEP_SECONDS_MAX)))
        if ahead + step > FAR_SECONDS_MAX or (
            ahead - step > -FAR_SECONDS_MAX and self._random.random() < 0.5
        ):
            step = -step
        self._clock.set(ahead + step)
        self.steps += 1
