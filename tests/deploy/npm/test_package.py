"""The file of the npm package: what is in it, how it is made, and what package managers do with it."""

import filecmp
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.small_disk import make_read_only, small_disk
from deploy.deployed import DEPLOY
from deploy.npm.install import MODULES, missing
from deploy.npm.packed import FOLDER_BUILD, build, folder, run
from tablestone import __version__

pytestmark = pytest.mark.slow

STARTS_AND_STOPS = """
const { Tablestone } = require("tablestone");
Tablestone.start().then(async (server) => {
  console.log((await server.createAccount("anna")).name);
  await server.stop();
});
"""


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(package) as file:
        for member in file:
            assert member.isfile() or member.isdir(), f"npm does not unpack {member.name}"
            assert member.mode == (0o755 if member.isdir() or member.mode & 0o100 else 0o644)
    subprocess.run(["tar", "--extract", "--file", package, "--directory", directory], check=True)
    return directory / "package"


def test_the_description_asks_for_nothing_else(unpacked: Path) -> None:
    described = json.loads((unpacked / "package.json").read_text("utf-8"))
    assert described.keys() == {
        *("name", "version", "private", "description", "license", "engines", "preferUnplugged"),
        *("bin", "main", "types"),
    }
    assert described["preferUnplugged"] is True
    assert described["private"] is True, "nobody publishes it by mistake"
    assert described["version"] == __version__
    for path in (*described["bin"].values(), described["main"], described["types"]):
        assert (unpacked / path).is_file()


def files_below(directory: Path) -> set[str]:
    return {str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()}


def test_it_holds_the_whole_folder_and_names_itself(unpacked: Path, tmp_path: Path) -> None:
    built = Path(FOLDER_BUILD) if FOLDER_BUILD else folder(tmp_path)
    server = unpacked / "server"
    names = files_below(built) | {"lib/BUILD"}
    assert files_below(server) == names
    _, different, _ = filecmp.cmpfiles(built, server, names - {"lib/BUILD"}, shallow=False)
    assert different == []
    assert (server / "lib" / "BUILD").read_text("utf-8") == "npm\n"
    assert (unpacked / "LICENSE").read_bytes() == (DEPLOY.parent / "LICENSE").read_bytes()


def test_what_npm_would_leave_out_is_in_it(tmp_path: Path) -> None:
    """Links, and files that look like those of npm itself."""
    source = tmp_path / "source"
    (source / "lib" / "node_modules").mkdir(parents=True)
    for name in ("tablestone-program", ".gitignore", ".npmrc", "kept.orig", "node_modules/kept"):
        (source / "lib" / name).write_text("*\n", encoding="utf-8")
    (source / "lib" / "tablestone-program").chmod(0o700)
    (source / "lib" / "link").symlink_to("kept.orig")
    (source / "lib" / "hard").hardlink_to(source / "lib" / "kept.orig")
    (source / "linked").symlink_to("lib")
    built = build(source, tmp_path)
    assert built.returncode == 0, built.stderr
    with tarfile.open(tmp_path / built.stdout.split()[1]) as file:
        found = {each.name for each in file if each.isfile()}
    assert {f"package/server/{each}" for each in files_below(source)} <= found
    assert "package/server/linked/hard" in found


def test_the_same_folder_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    again = build(folder(tmp_path), tmp_path / "with blanks")
    assert again.returncode == 0, again.stderr
    checksum, name = again.stdout.split()
    assert (tmp_path / "with blanks" / name).read_bytes() == package.read_bytes()
    assert run("sha256sum", package).stdout.startswith(checksum)


def test_no_program(tmp_path: Path) -> None:
    ended = build(tmp_path, tmp_path / "out")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"There is no program {tmp_path}/lib/tablestone-program.\n"
    assert not (tmp_path / "out").exists()


def test_no_arguments() -> None:
    ended = run(DEPLOY / "npm" / "build")
    assert (ended.returncode, ended.stderr) == (2, "Usage: deploy/npm/build FOLDER OUT\n")


def test_a_full_disk_keeps_the_last_file(package: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512 * 1024) as disk:
        (disk / package.name).write_bytes(b"the last one")
        ended = build(folder(tmp_path), disk)
        assert ended.returncode != 0
        assert [(each.name, each.read_bytes()) for each in disk.iterdir()] == [
            (package.name, b"the last one")
        ]
        make_read_only(disk)
        ended = build(folder(tmp_path / "again"), disk)
        assert ended.returncode != 0
        assert "Read-only file system" in ended.stderr


class Registry(ThreadingHTTPServer):
    """A registry of npm that has no package, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Asked)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Asked(BaseHTTPRequestHandler):
    server: Registry

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_error(404)

    do_GET = do_POST = do_HEAD = do_PUT = _answer  # noqa: N815 - the names of http.server

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


AUDITS = {"POST /-/npm/v1/security/advisories/bulk", "POST /-/npm/v1/security/audits/quick"}
"""`npm audit` sends the names of all packages, and of this one, in the body."""
PNPM = ("node", str(MODULES / "pnpm" / "bin" / "pnpm.cjs"))
YARN = ("node", str(MODULES / "@yarnpkg" / "cli-dist" / "bin" / "yarn.js"))
MANAGERS = {
    "npm": (
        ("npm", "install", "--save-dev", "./{file}"),
        ("node_modules/.bin/tablestone", "--version"),
        ("node", "program.cjs"),
        ("npm", "install"),
    ),
    "npx": (("npx", "--yes", "./{file}", "--version"),),
    "pnpm": (
        (*PNPM, "add", "--save-dev", "./{file}"),
        (*PNPM, "exec", "tablestone", "--version"),
        ("node", "program.cjs"),
        (*PNPM, "install"),
    ),
    "yarn": (
        (*YARN, "add", "--dev", "./{file}"),
        (*YARN, "run", "tablestone", "--version"),
        (*YARN, "node", "program.cjs"),
        (*YARN, "install"),
    ),
}
PACKAGES = {"pnpm": ("pnpm",), "yarn": ("@yarnpkg/cli-dist",)}


@pytest.mark.parametrize("manager", MANAGERS)
def test_no_registry_is_asked_for_our_name(
    manager: str, package: Path, registry: Registry, tmp_path: Path
) -> None:
    if (reason := missing(*PACKAGES.get(manager, ()))) is not None:
        pytest.skip(reason)
    project = tmp_path / "a project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "of-a-user", "private": true}', "utf-8")
    (project / "program.cjs").write_text(STARTS_AND_STOPS, "utf-8")
    shutil.copy(package, project)
    home = tmp_path / "home"
    environment = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "npm_config_userconfig": str(home / ".npmrc"),
        "npm_config_cache": str(home / "cache"),
        "npm_config_registry": registry.address,
        "YARN_NPM_REGISTRY_SERVER": registry.address,
        "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
        "YARN_ENABLE_TELEMETRY": "0",
        "YARN_ENABLE_IMMUTABLE_INSTALLS": "0",
    }
    printed = ""
    for command in MANAGERS[manager]:
        words = [each.format(file=package.name) for each in command]
        ended = run(*words, directory=project, environment=environment)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        printed += ended.stdout
    assert f"Tablestone {__version__}, " in printed
    assert ("anna" in printed) == (manager != "npx")
    assert [each for each in registry.asked if "tablestone" in each and each not in AUDITS] == []
    assert run("npm", "view", "tablestone", environment=environment).returncode != 0
    assert "GET /tablestone" in registry.asked, "the registry is the one that is asked"
