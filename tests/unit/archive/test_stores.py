"""What an archive asks of its store (`archive/store.py`): a directory, and a bucket."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import stat
import sys
import time
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tablestone.archive import store as store_module
from tablestone.archive.store import (
    CloudStore,
    DirectoryStore,
    ObjectExists,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
    in_a_thread,
    open_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tablestone.archive.store import Store

asynchronous = pytest.mark.asyncio
BUCKET = "archive-of-tests"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of moto's S3 server, in a thread."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (
            ("AWS_ENDPOINT", f"http://{host}:{port}"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "AKIATEST"),
            ("AWS_SECRET_ACCESS_KEY", "SECRETOFTHETEST"),
            ("AWS_REGION", "us-east-1"),
        ):
            patched.setenv(name, value)
        request = urllib.request.Request(f"http://{host}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request).close()
        yield f"s3://{BUCKET}/tables"
    server.stop()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "new" / "archive")
    url = request.getfixturevalue("bucket")
    return CloudStore(f"{url}/{tmp_path.name}")


async def names(store: Store, prefix: str = "") -> list[str]:
    return sorted(found.name for found in await store.list(prefix))


@asynchronous
async def test_an_object_is_created_once(store: Store) -> None:
    await store.create("life/a/1", b"one")
    for data in (b"one", b"two"):
        with pytest.raises(ObjectExists):
            await store.create("life/a/1", data)
    assert await store.read("life/a/1") == b"one"
    assert await store.read("life/a/1", 2) == b"on"
    assert await store.read("life/a/1", 200) == b"one"


@asynchronous
async def test_of_two_writers_at_once_one_creates(store: Store) -> None:
    for number in range(3):
        data = [b"%d" % writer * 2_000 for writer in range(6)]
        outcomes = await asyncio.gather(
            *(store.create(f"life/a/{number}", each) for each in data), return_exceptions=True
        )
        assert (
            sorted(map(str, map(type, outcomes)))[1:] == [str(ObjectExists)] * 5
            or outcomes.count(None) == 1
        )
        assert await store.read(f"life/a/{number}") == data[outcomes.index(None)]


@asynchronous
async def test_what_is_not_there(store: Store) -> None:
    assert await names(store) == []
    for read in (store.read("life/a/1"), store.read("life/a/1", 1)):
        with pytest.raises(ObjectMissing):
            await read
    await store.delete("life/a/1")


@asynchronous
async def test_listings(store: Store) -> None:
    for name in ("life/a/1", "life/a/2", "life/b/1", "other/a/1"):
        await store.create(name, b"x" * 7)
    assert await names(store) == ["life/a/1", "life/a/2", "life/b/1", "other/a/1"]
    assert await names(store, "life/") == ["life/a/1", "life/a/2", "life/b/1"]
    assert await names(store, "life/a/") == ["life/a/1", "life/a/2"]
    assert await names(store, "none/") == []
    found = await store.list("other/")
    assert found[0].size == 7
    assert abs(found[0].modified - time.time()) < 60
    await store.delete("life/a/1")
    assert await names(store, "life/a/") == ["life/a/2"]


@asynchronous
@pytest.mark.parametrize("size", [0, 3 << 20])
async def test_small_and_large_objects(store: Store, size: int) -> None:
    await store.create("life/a/1", b"x" * size)
    assert len(await store.read("life/a/1")) == size


@asynchronous
async def test_a_bucket_that_is_gone_is_a_sentence_without_secrets(bucket: str) -> None:
    gone = CloudStore("s3://no-such-bucket/tables")
    for call in (gone.create("a", b""), names(gone)):
        with pytest.raises(StoreUnavailable, match="There is no such bucket") as error:
            await call
        assert "SECRETOFTHETEST" not in str(error.value)
        assert "\n" not in str(error.value)
    assert bucket


@pytest.mark.parametrize(
    "url", ["ftp://host/path", "http://bucket.example/", "file+x:///a", "s3:/", "az://"]
)
def test_urls_of_no_store(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"s3://BUCKET/PATH.*\.$"):
        open_store(url)


def test_an_archive_in_the_data_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "link").symlink_to(data)
    for inside in (data, data / "archive", tmp_path / "link" / "a", data / ".." / "data" / "a"):
        for url in (str(inside), f"file://{inside}"):
            with pytest.raises(StoreRefused, match="in the data directory"):
                open_store(url, data)
    open_store(str(tmp_path / "data-archive"), data)


def test_a_data_directory_in_the_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for around in (tmp_path, tmp_path / "link"):
        with pytest.raises(StoreRefused, match=r"The data directory .* is in the archive"):
            open_store(str(around), tmp_path / "data")


@pytest.mark.parametrize("module", ["obstore", "backports"])
def test_without_the_extra_a_sentence_names_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreRefused, match=r"needs the extra `archive`: pip install .*\[archive\]"):
        open_store("s3://bucket/tables")


@asynchronous
async def test_files_of_kills_go_when_a_server_has_started(tmp_path: Path) -> None:
    """Those that are a day old: another server may be writing a younger one."""
    store = DirectoryStore(tmp_path)
    await store.create("life/a/1", b"x")
    unfinished = tmp_path / ".unfinished"
    old, young = unfinished / "old.part", unfinished / "young.part"
    for path, days in ((old, 2), (young, 0.5)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - days * 86_400,) * 2)
    await store.create("life/a/2", b"x")
    assert old.exists()  # one look in a run is enough
    await DirectoryStore(tmp_path).create("life/a/3", b"x")
    assert list(unfinished.iterdir()) == [young]
    assert await names(store) == ["life/a/1", "life/a/2", "life/a/3"]


@asynchronous
async def test_what_a_directory_needs_before_an_object_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is flushed before it has its name, each new directory is, and the last one after that."""
    root = tmp_path / "archive"
    steps: list[str] = []

    def noting(module: Any, name: str, shown: Callable[..., str]) -> None:
        real = getattr(module, name)

        def noted(*given: Any) -> Any:
            steps.append(shown(*given))
            return real(*given)

        monkeypatch.setattr(module, name, noted)

    noting(store_module, "flush", lambda file: f"flush {Path(file.name).suffix}")
    noting(store_module, "flush_directory", lambda path: f"flush {path.relative_to(tmp_path)}/")
    noting(os, "link", lambda _old, new: f"link {Path(new).relative_to(root)}")
    store = DirectoryStore(root)
    await store.create("life/a/1", b"x")
    first = ["flush ./", "flush archive/", "flush archive/life/"]
    each = ["flush .part", "link life/a/1", "flush archive/life/a/"]
    assert steps == first + each
    steps.clear()
    with pytest.raises(ObjectExists):
        await store.create("life/a/1", b"x")
    assert steps == each  # an attempt before may have ended in between
    steps.clear()
    await DirectoryStore(root).create("life/a/2", b"x")
    assert steps[:3] == first  # whether the process before has flushed them is not known


@asynchronous
async def test_a_flush_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)

    def broken(_what: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("flush", "flush_directory"):
        with monkeypatch.context() as patched:
            patched.setattr(store_module, name, broken)
            with pytest.raises(StoreUnavailable, match="Input/output error"):
                await store.create(f"life/a/{name}", b"x")


@asynchronous
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
async def test_a_file_system_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(*_given: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreUnavailable, match="makes no hard links"):
        await DirectoryStore(tmp_path).create("life/a/1", b"x")
    assert [name for *_, files in os.walk(tmp_path) for name in files] == []


@asynchronous
async def test_only_the_owner_reads_the_archive(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await DirectoryStore(tmp_path / "archive").create("life/a/1", b"x")
    finally:
        os.umask(before)
    for path in [tmp_path / "archive", *(tmp_path / "archive").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if path.is_file() else 0o700)


@asynchronous
async def test_a_listing_with_other_files(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.create("life/a/1", b"x")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "lost+found" / "1").write_bytes(b"")
    (tmp_path / "lost+found").chmod(0)
    (tmp_path / "life" / "dangling").symlink_to("nowhere")
    (tmp_path / "life" / "loop").symlink_to("..")
    (tmp_path / "life" / ".2.part").write_bytes(b"half")
    (tmp_path / "readme").write_bytes(b"")
    await store.create("life/b/2", b"x")
    found = await names(store)
    assert {"life/a/1", "life/b/2"} <= set(found) <= {"life/a/1", "life/b/2", "readme", "life/loop"}


@asynchronous
async def test_a_listing_while_objects_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes meanwhile hides nothing that stays."""
    store = DirectoryStore(tmp_path)
    for life in ("a", "b", "c"):
        for number in range(3):
            await store.create(f"{life}/{number}/x", b"x")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if isinstance(path, int):
            return real(path)
        entries = list(real(path))
        if entries and (Path(path) / "x").exists() and Path(path).name == "1":
            (Path(path) / "x").unlink()
        if Path(path) == tmp_path / "b":
            shutil.rmtree(path)
        return iter(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    assert await names(store) == ["a/0/x", "a/2/x", "c/0/x", "c/2/x"]


@asynchronous
async def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DirectoryStore(tmp_path / "file")
    for call in (store.create("life/a/1", b""), names(store), store.read("life/a/1")):
        with pytest.raises(StoreUnavailable, match=r"/file: (Not a directory|File exists)"):
            await call


WRITER = """
import asyncio, sys
from pathlib import Path
from tablestone.archive.store import DirectoryStore
async def main():
    store = DirectoryStore(Path(sys.argv[1]))
    print("begun", flush=True)
    for number in range(10**6):
        await store.create(f"life/a/{number:06}", b"%06d" % number * 20_000)
asyncio.run(main())
"""


@asynchronous
async def test_a_kill_leaves_no_half_object(tmp_path: Path) -> None:
    for kill in range(3):
        root = tmp_path / f"{kill}"
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(root), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        await writer.stdout.readline()
        await asyncio.sleep(0.05 + 0.03 * kill)
        writer.send_signal(signal.SIGKILL)
        await writer.wait()
        store = DirectoryStore(root)
        found = await names(store)
        assert found == [f"life/a/{number:06}" for number in range(len(found))]
        for number, name in enumerate(found):
            assert await store.read(name) == b"%06d" % number * 20_000


@asynchronous
@pytest.mark.parametrize("gone", [".", "life"], ids=["the root", "all in it"])
async def test_a_disk_that_is_not_mounted_any_more_gets_no_new_directory(
    tmp_path: Path, gone: str
) -> None:
    """What was archived meanwhile would lie below the mount point, and be missing when the disk is back."""
    root = tmp_path / "archive"
    store = DirectoryStore(root)
    await store.create("life/changes/1/1", b"")
    away = tmp_path / "away"
    (root / gone).rename(away)
    with pytest.raises(StoreUnavailable, match="is gone: is its disk mounted"):
        await store.create("life/changes/1/2", b"")
    assert not (root / "life").exists()
    away.rename(root / gone)
    await store.create("life/changes/1/2", b"")


def test_an_endpoint_without_a_scheme_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstore panics with it, at the first request."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")
    with pytest.raises(StoreRefused, match="AWS_ENDPOINT_URL must begin with https://"):
        open_store("s3://bucket/tables")


@asynchronous
async def test_a_panic_of_the_store_is_an_error_as_any_other() -> None:
    class Panic(BaseException):
        """As pyo3's PanicException."""

    class Panics:
        @staticmethod
        def translated() -> nullcontext[None]:
            return nullcontext()

        @in_a_thread
        def read(self) -> bytes:
            raise Panic("called `Result::unwrap()` on an `Err` value")

    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable, match="unwrap"):
            await Panics().read()
