"""Where an archive lies: an object store by its URL (S3, Azure, Google), or a directory.

A store creates objects that are not there yet, and never replaces one. For a directory there is a writer of our own:
an object counts only once it and its directory are flushed to the disk.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import os
import secrets
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from tablestone.archive.objects import zstd_library
from tablestone.extras import needs
from tablestone.fsync import flush, flush_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

CLOUD_SCHEMES: Final = ("s3", "s3a", "az", "azure", "abfs", "abfss", "adl", "gs")
FORMS: Final = "s3://BUCKET/PATH, az://CONTAINER/PATH, gs://BUCKET/PATH, or a directory"
ENDPOINTS: Final = (
    *("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"),
)
"""Variables of obstore with the address of a store."""
MEANINGS: Final = (
    ("169.254.169.254", "The environment has no credentials, and this machine has no role. "),
    ("404 Not Found", "There is no such bucket or container. "),
    ("401 Unauthorized", "The store does not accept the credentials. "),
    ("403 Forbidden", "The store denies access. "),
    ("builder error", "An endpoint with http:// needs AWS_ALLOW_HTTP=true or the like. "),
)
"""What parts of obstore's messages mean."""
RETRIES: Final[Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
LEFT_SECONDS: Final = 86_400.0
"""A file that is written to a directory takes less than this."""

Answer = TypeVar("Answer")


class StoreRefused(Exception):
    """The URL names no store that can be used; the text is a sentence."""


class StoreUnavailable(Exception):
    """The store does not answer, or refuses; the text is a sentence. It may pass."""


class ObjectExists(Exception):
    """An object of this name is there already."""


class ObjectMissing(Exception):
    """There is no object of this name."""


class Found(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    modified: float
    """Seconds since 1970, by the clock of the store."""


class Store(Protocol):
    """Any call may raise `StoreUnavailable`."""

    async def create(self, name: str, data: bytes) -> None:
        """Create an object durably. `ObjectExists`: a create that seemed to fail may have done it."""
        ...

    async def read(self, name: str, length: int | None = None) -> bytes:
        """The object, or its first bytes; `ObjectMissing` if there is none."""
        ...

    async def read_starts(self, names: Sequence[str], length: int) -> builtins.list[bytes | None]:
        """The first bytes of many objects; None for one that is missing."""
        ...

    async def list(self, prefix: str = "") -> builtins.list[Found]:
        """The objects whose names begin with a prefix, in any order."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        ...


def open_store(url: str, data: Path | None = None, *, must_exist: bool = False) -> Store:
    """The store of a URL. `data` is the directory that is archived: the archive may not lie in it.

    `must_exist`: a directory that is missing is unavailable, as a disk that is not mounted; it is not empty.
    """
    scheme = urlsplit(url).scheme.lower()
    try:
        zstd_library()
        if scheme in CLOUD_SCHEMES:
            return CloudStore(url)
    except ModuleNotFoundError:
        raise StoreRefused(needs("An archive", "the extra `archive`", "archive")) from None
    if len(scheme) > 1 and scheme != "file":  # one letter is a drive
        raise StoreRefused(f"The archive {url} has no known form: {FORMS}.")
    path = Path(urlsplit(url).path if scheme == "file" else url).absolute()
    if data is not None:
        here, there = Path(os.path.realpath(path)), Path(os.path.realpath(data))
        if here.is_relative_to(there):
            raise StoreRefused(
                f"The archive {path} is in the data directory, which it would not outlive."
            )
        if there.is_relative_to(here):
            raise StoreRefused(f"The data directory {data} is in the archive {path}.")
    if must_exist and not path.is_dir():
        raise StoreUnavailable(f"The directory {path} does not exist.")
    return DirectoryStore(path)


def in_a_thread(method: Callable[..., Answer]) -> Callable[..., Coroutine[Any, Any, Answer]]:
    """Run a method of a store in a thread of its own, which a stop does not wait for, and translate its errors.

    The asynchronous calls of obstore answer from threads that can end the process with a crash when Python ends.
    """

    @wraps(method)
    async def call(self: Any, *given: Any) -> Answer:
        answer: Future[Answer] = Future()
        answer.set_running_or_notify_cancel()  # a caller that is cancelled leaves it alone

        def run() -> None:
            try:
                with self.translated():
                    found = method(self, *given)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                answer.set_exception(error)
            except BaseException as panic:  # noqa: BLE001 - of obstore's own code
                answer.set_exception(StoreUnavailable(_sentence(panic)))
            else:
                answer.set_result(found)

        Thread(target=run, name="tablestone-archive", daemon=True).start()
        return await asyncio.wrap_future(answer)

    return call


class CloudStore:
    """A bucket or container, by obstore. Credentials come from its environment variables or files."""

    def __init__(self, url: str) -> None:
        """`ModuleNotFoundError` without the extra."""
        import obstore  # noqa: PLC0415 - an extra
        from obstore.store import from_url  # noqa: PLC0415

        if not urlsplit(url).netloc:
            raise StoreRefused(f"The archive {url} names no bucket: {FORMS}.")
        for name in ENDPOINTS:
            if "://" not in os.environ.get(name, "://"):
                raise StoreRefused(f"{name} must begin with https:// or http://.")
        self._obstore: Any = obstore
        try:
            self._store: Any = from_url(url, retry_config=RETRIES)
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise StoreRefused(f"The archive {url} cannot be used: {_sentence(error)}") from None

    @in_a_thread
    def create(self, name: str, data: bytes) -> None:
        try:
            self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except (self._obstore.exceptions.NotFoundError, FileNotFoundError):
            raise StoreUnavailable("There is no such bucket or container.") from None

    @in_a_thread
    def read(self, name: str, length: int | None = None) -> bytes:
        options = None if length is None else {"range": (0, length)}
        return bytes(self._obstore.get(self._store, name, options=options).bytes())

    async def read_starts(self, names: Sequence[str], length: int) -> builtins.list[bytes | None]:
        async def read(name: str) -> bytes | None:
            with suppress(ObjectMissing):
                return await self.read(name, length)
            return None

        return await asyncio.gather(*map(read, names))

    @in_a_thread
    def list(self, prefix: str = "") -> builtins.list[Found]:
        return [
            Found(each["path"], each["size"], each["last_modified"].timestamp())
            for chunk in self._obstore.list(self._store, prefix=prefix or None)
            for each in chunk
        ]

    @in_a_thread
    def delete(self, name: str) -> None:
        with suppress(self._obstore.exceptions.NotFoundError, FileNotFoundError):
            self._obstore.delete(self._store, name)

    @contextmanager
    def translated(self) -> Iterator[None]:
        errors = self._obstore.exceptions
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise ObjectExists from None
        except (errors.NotFoundError, FileNotFoundError):
            raise ObjectMissing from None
        except (errors.BaseError, OSError, TimeoutError) as error:
            raise StoreUnavailable(_sentence(error)) from None


def _sentence(error: BaseException) -> str:
    """The first line of an error: obstore adds its internal state below, and credentials never belong in a log."""
    text = str(error).strip().partition("\n")[0].partition(": <?xml")[0]
    meaning = next((means for part, means in MEANINGS if part in text), "")
    return meaning + (text or type(error).__name__).rstrip(".") + "."


class DirectoryStore:
    """A directory, best on another disk. An object is linked to its name when its bytes are on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[Path] = set()
        """Directories that are known to be durable."""

    @in_a_thread
    def create(self, name: str, data: bytes) -> None:
        path, unfinished = self._root / name, self._root / ".unfinished"
        is_first = not self._made
        self._make_directory(path.parent)
        unfinished.mkdir(mode=0o700, exist_ok=True)
        unnamed = unfinished / f"{secrets.token_hex(8)}.part"
        try:
            with open(unnamed, "wb", opener=_private) as file:
                file.write(data)
                flush(file)
            if is_first:  # a kill has left its file, and another server may be writing one
                for left in unfinished.iterdir():
                    if left.stat().st_mtime < unnamed.stat().st_mtime - LEFT_SECONDS:
                        left.unlink(missing_ok=True)
            os.link(unnamed, path)
        except FileExistsError:
            raise ObjectExists from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise StoreUnavailable(
                f"The archive {self._root} cannot be written: its file system makes no hard links."
            ) from None
        finally:
            unnamed.unlink(missing_ok=True)
            flush_directory(path.parent)  # also of an object that an earlier attempt left there

    def _make_directory(self, path: Path) -> None:
        """Make a directory and those above it; each is durable only once the one above it is flushed."""
        if path in self._made:
            if not path.is_dir():  # made again, it could lie on another disk
                raise StoreUnavailable(f"The directory {path} is gone: is its disk mounted?")
            return
        if path != self._root:
            self._make_directory(path.parent)
        path.mkdir(mode=0o700, parents=path == self._root, exist_ok=True)
        flush_directory(path.parent)
        self._made.add(path)

    @in_a_thread
    def read(self, name: str, length: int | None = None) -> bytes:
        return self._read(name, -1 if length is None else length)

    @in_a_thread  # one for all: a thread takes longer than a read
    def read_starts(self, names: Sequence[str], length: int) -> builtins.list[bytes | None]:
        def read(name: str) -> bytes | None:
            with suppress(FileNotFoundError):
                return self._read(name, length)
            return None

        return [read(name) for name in names]

    def _read(self, name: str, length: int) -> bytes:
        with (self._root / name).open("rb", buffering=0) as file:
            return file.read(length)

    @in_a_thread
    def list(self, prefix: str = "") -> builtins.list[Found]:
        found: builtins.list[Found] = []
        waiting = [self._root / prefix if prefix.endswith("/") else self._root]
        while waiting:
            with suppress(FileNotFoundError):  # deleted meanwhile
                for entry in os.scandir(waiting.pop()):
                    # The directory lost+found is at the top of a disk, and nobody may read it.
                    if entry.name.startswith(".") or entry.name == "lost+found":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                        continue
                    name = entry.path.removeprefix(f"{self._root}{os.sep}").replace(os.sep, "/")
                    if name.startswith(prefix):
                        with suppress(FileNotFoundError):
                            stat = entry.stat()
                            found.append(Found(name, stat.st_size, stat.st_mtime))
        return found

    @in_a_thread
    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise ObjectMissing from None
        except OSError as error:
            raise StoreUnavailable(f"The archive {self._root}: {error.strerror}.") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)
