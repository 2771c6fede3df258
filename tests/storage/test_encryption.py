"""Encryption at rest of the SQLite engine: no file is readable, and a wrong key is refused."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from storage.conftest import HeldClock
from storage.encrypted_directory import (
    KEY,
    MARKER,
    OTHER,
    ROWS,
    VALUES,
    altered,
    content_of,
    fill,
    logged,
    made_directory,
    open_with,
    untold,
)
from storage.write_sets import WHOLE
from tablestone.engines.contract import EngineBroken, EngineRefused, Key, StorageId
from tablestone.engines.kind import FORM, EncryptionKey, Opening
from tablestone.engines.registry import held_for_processes, open_engine
from tablestone.engines.sqlite import encryption
from tablestone.engines.sqlite.backup import NewDirectory, copy_database, count_rows
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES, DataDirectory
from tablestone.engines.sqlite.encryption import PageCipher, name_of
from tablestone.engines.sqlite.free_space import compact
from tablestone.engines.sqlite.reencryption import reencrypt
from tablestone.engines.sqlite.salvage import damaged_storage
from tablestone.engines.sqlite.upgrade import upgrade


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.mark.parametrize("key", [None, KEY], ids=["in the clear", "encrypted"])
@pytest.mark.asyncio
async def test_no_file_has_what_is_stored(key: EncryptionKey | None, tmp_path: Path) -> None:
    data = tmp_path / "data"
    engine = open_with(data, key)
    await fill(engine)
    copy_database(data, tmp_path / "backup.db", untold, key)
    found = {name for name, each in content_of(tmp_path).items() if MARKER in each}
    assert found == (set() if key else {"data/tablestone.db-wal", "backup.db"})
    await engine.close()
    found = {name for name, each in content_of(tmp_path).items() if MARKER in each}
    assert found == (set() if key else {"data/tablestone.db", "backup.db"})
    for secret in (KEY.secret, KEY.secret.hex().encode()):
        assert not any(secret in each for each in content_of(tmp_path).values())


@pytest.mark.asyncio
async def test_what_is_stored_comes_back(data: Path, tmp_path: Path) -> None:
    copy_database(data, tmp_path / "tablestone.db", untold, KEY)
    (tmp_path / "restored").mkdir()
    (tmp_path / "tablestone.db").rename(tmp_path / "restored" / "tablestone.db")
    for place in (data, tmp_path / "restored"):
        engine = open_with(place, KEY)
        assert {
            Key(row.partition, row.row): row.value
            for row in await engine.scan(WHOLE, rows_max=1_000)
        } == VALUES
        assert await engine.check() == []
        await engine.close()


OPENINGS: dict[str, Callable[[Path, EncryptionKey | None], object]] = {
    "serve": lambda data, key: open_engine(f"sqlite:{data}", HeldClock(), key=key),
    "several workers": lambda data, key: held_for_processes(f"sqlite:{data}", key).__enter__(),
    "change": lambda data, key: open_engine(f"sqlite:{data}", HeldClock(), shared=True, key=key),
    "read": lambda data, key: open_engine(f"sqlite:{data}", HeldClock(), read_only=True, key=key),
    "compact": lambda data, key: compact(data, untold, key),
    "back up": lambda data, key: copy_database(data, data.parent / "copy", untold, key),
    "upgrade": lambda data, key: upgrade(data, key=key),
    "count": count_rows,
    "salvage": lambda data, key: damaged_storage(data, key).__enter__(),
    "encrypt again": lambda data, key: reencrypt(data, key, EncryptionKey(bytes(32)), untold),
}


NOT_FITTING = {
    "no key": (KEY, None, " is encrypted( already)?: "),
    "another key": (KEY, OTHER, "The key is not the one that encrypts the data directory "),
    "a key for nothing": (None, KEY, " is not encrypted, and a key is given: "),
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("case", NOT_FITTING)
@pytest.mark.asyncio
async def test_a_key_that_does_not_fit_is_refused_and_changes_nothing(
    case: str, opening: str, tmp_path: Path
) -> None:
    made_with, given, sentence = NOT_FITTING[case]
    data = await logged(tmp_path / "first", tmp_path / "data", made_with)
    before = altered(content_of(data))
    with pytest.raises(EngineRefused, match=sentence) as refused:
        OPENINGS[opening](data, given)
    assert not isinstance(refused.value, EngineBroken)
    assert altered(content_of(data)) == before
    engine = open_with(data, made_with)
    assert len(await engine.scan(WHOLE, rows_max=1_000)) == ROWS
    await engine.close()


def test_an_installation_without_the_cipher_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(apsw, "mc_version")
    with pytest.raises(EngineRefused, match="This installation cannot encrypt"):
        open_with(tmp_path / "data", KEY)
    assert not (tmp_path / "data" / "tablestone.db").exists()


def test_an_engine_that_does_not_encrypt_says_so() -> None:
    with pytest.raises(EngineRefused, match="The engine memory: does not encrypt"):
        open_engine("memory:", HeldClock(), key=KEY)


@pytest.mark.parametrize(
    ("text", "is_key"),
    [
        (bytes(range(32)).hex(), True),
        (bytes(range(32)).hex().upper() + "\n", True),
        ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", True),
        ("  AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n", True),
        ("", False),
        ("a passphrase", False),
        ("AAECAwQFBgcICQoLDA0ODw==", False),
        (bytes(range(31)).hex(), False),
        ("g" * 64, False),
    ],
)
def test_the_forms_of_a_key(text: str, *, is_key: bool) -> None:
    if is_key:
        assert EncryptionKey.parse(text) == KEY
    else:
        with pytest.raises(ValueError, match=FORM):
            EncryptionKey.parse(text)


def test_a_key_has_no_printed_form() -> None:
    assert repr(KEY) == str(KEY) == "EncryptionKey(hidden)"
    assert name_of(KEY) != name_of(OTHER)


def test_the_cipher_counts_blocks_as_rfc_8439_does() -> None:
    """Its counter has 32 bits and wraps to 0: the test vector of the RFC, section 2.3.2, and the end."""
    nonce = bytes.fromhex("000000090000004a00000000") + bytes(4)
    assert (
        encryption._stream(KEY.secret, nonce, 1, bytes(64))
        .hex()
        .startswith("10f1e7e4d13b5915500fdd1f")
    )
    last, first = (encryption._stream(KEY.secret, nonce, n, bytes(64)) for n in (2**32 - 1, 0))
    assert encryption._stream(KEY.secret, nonce, 2**32 - 1, bytes(128)) == last + first


def test_pages_in_the_wrong_place_and_of_another_key_are_not_whole(data: Path) -> None:
    whole = (data / "tablestone.db").read_bytes()
    pages = [whole[at : at + PAGE_SIZE_BYTES] for at in range(0, len(whole), PAGE_SIZE_BYTES)]
    cipher, other = PageCipher(KEY), PageCipher(OTHER)
    for number, page in enumerate(pages, start=1):
        assert cipher.is_whole(number, page)
        assert not cipher.is_whole(number + 1, page)
        assert not other.is_whole(number, page)
        assert cipher.opened(number, page) is not None
    assert (cipher.opened(1, pages[0]) or b"").startswith(b"SQLite format 3\0")
    assert not cipher.is_whole(1, b"")


@pytest.mark.asyncio
async def test_a_new_directory_from_a_cluster_is_encrypted(tmp_path: Path) -> None:
    with NewDirectory(tmp_path / "new", StorageId(b"keyspace"), KEY) as target:
        await target.write([])
        target.finish()
    assert count_rows(tmp_path / "new", KEY) == 0
    with pytest.raises(EngineRefused):
        count_rows(tmp_path / "new")


def test_an_encrypted_database_begins_with_the_name_of_its_key(data: Path) -> None:
    start = (data / "tablestone.db").read_bytes()[:24]
    assert start[:16] == name_of(KEY)
    assert struct.unpack(">H", start[16:18]) == (PAGE_SIZE_BYTES,)
    assert start[20] == 32


def test_the_next_start_recovers_from_a_kill_before_the_first_page(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "tablestone.db").touch()
    DataDirectory(data, Opening.SERVER, key=KEY).close()
    DataDirectory(data, Opening.READ_ONLY, key=KEY).close()
