"""The package that `deploy/debian/build` makes, installed, used, upgraded, removed and purged in a new Debian."""

import shutil
import socket
import subprocess
import time
import tomllib
from pathlib import Path
from urllib.request import urlopen

import pytest

from deploy.deployed import DEPLOY, folder_build, needs, run
from deploy.packaged import BUILD_SECONDS_MAX, LIMITS, SECONDS_MAX, Podman, build, built_twice
from server_process import free_ports
from tablestone import __version__

pytestmark = [pytest.mark.slow, pytest.mark.network, needs("debootstrap", "dpkg-deb", "lintian")]
BUILD = DEPLOY / "debian" / "build"
CONFIGURATION = "etc/tablestone.toml"
UNITS = ("tablestone.service", "tablestone-backup.service", "tablestone-backup.timer")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
DATA = ("var/lib/tablestone/tablestone.db", "var/backups/tablestone")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return built_twice(BUILD, tmp_path_factory)


@pytest.fixture(scope="module")
def new_debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root of Debian 12 with what the package depends on."""
    folder_build()
    root = tmp_path_factory.mktemp("root")
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=adduser,procps,systemd", "bookworm", root],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert made.returncode == 0, made.stdout
    return root


@pytest.fixture
def root(new_debian: Path, files: list[Path], tmp_path: Path) -> Path:
    """A copy of it, in which the package is installed."""
    copy = tmp_path / "root"
    subprocess.run(["cp", "--archive", new_debian, copy], check=True)
    copy.chmod(0o755)
    shutil.copy(files[0], copy / "tablestone.deb")
    dpkg(copy, "--install", "/tablestone.deb")
    return copy


def inside(root: Path, *words: str, status: int = 0, user: str = "root", **environment: str) -> str:
    """Both outputs of a command in the root."""
    ended = subprocess.run(
        ["chroot", f"--userspec={user}:{user}", root, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=ENVIRONMENT | environment,
    )
    assert ended.returncode == status, ended.stdout
    return ended.stdout


def dpkg(root: Path, *words: str) -> str:
    return inside(root, "dpkg", *words, DEBIAN_FRONTEND="noninteractive")


def test_two_builds_at_once_make_the_same_bytes(files: list[Path]) -> None:
    first, second = files
    assert first.name == f"tablestone_{__version__}_amd64.deb"
    assert first.read_bytes() == second.read_bytes()


def test_lintian_has_nothing_to_say(files: list[Path]) -> None:
    words = ("--allow-root", "--fail-on=error,warning", "--tag-display-limit=0")
    assert run("lintian", *words, str(files[0])).stdout == ""


def test_systemd_takes_its_units(root: Path) -> None:
    assert inside(root, "systemctl", "is-enabled", "tablestone") == "enabled\n"
    assert inside(root, "systemctl", "is-enabled", "tablestone-backup.timer", status=1) == (
        "disabled\n"
    )
    assert inside(root, "systemd-analyze", "verify", "--man=no", *UNITS) == ""
    unit = root / "usr/lib/systemd/system/tablestone.service"
    unit.write_text(unit.read_text().replace("/usr/bin/tablestone", "/usr/bin/absent"))
    assert "absent" in inside(root, "systemd-analyze", "verify", "--man=no", *UNITS, status=1)


def setting(root: Path, name: str) -> str:
    """A setting of the unit."""
    lines = (root / "usr/lib/systemd/system/tablestone.service").read_text().splitlines()
    (found,) = (line.partition("=")[2] for line in lines if line.startswith(f"{name}="))
    return found


def test_the_command_of_the_unit_serves_as_its_user(root: Path) -> None:
    admin = f"--admin={configure(root)}"
    variable, _, value = setting(root, "Environment").partition("=")
    assert value == f"/{CONFIGURATION}"
    user = setting(root, "User")
    with subprocess.Popen(
        ["chroot", f"--userspec={user}:{user}", root, *setting(root, "ExecStart").split()],
        env=ENVIRONMENT | {variable: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        place = ("--config", value)
        try:
            next(line for line in server.stdout if line.startswith("Table endpoint: "))
            health = inside(root, "tablestone", "health", admin)
            inside(root, "tablestone", "account", "create", "weather", *place, user=user)
            server.terminate()
            assert server.wait(SECONDS_MAX) == 0
        finally:
            server.kill()
    assert health.startswith("ready")
    assert "refused" in inside(root, "tablestone", "health", admin, status=1)
    assert inside(root, "tablestone", "account", "list", *place, user=user).startswith("weather")
    assert (root / DATA[0]).stat().st_uid == int(inside(root, "id", "--user", user))
    assert inside(root, "tablestone", "--version").endswith(", Debian build\n")
    backup = ("backup", "--data", "/var/lib/tablestone", "/var/backups/tablestone")
    assert "tablestone-" in inside(root, "tablestone", *backup, user=user)


def configure(root: Path) -> int:
    """Change the configuration, as an administrator does: to free ports. Returns that of the operator."""
    port, admin = free_ports(2)
    file = root / CONFIGURATION
    text = file.read_text().replace("10002", str(port)).replace("10003", str(admin))
    assert tomllib.loads(text)["accounts"] == "none"
    file.write_text(text)
    return admin


def is_ready(admin: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{admin}/health/ready", timeout=SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@needs("podman", "runc")
def test_systemd_runs_it(root: Path, tmp_path: Path) -> None:
    """A real systemd, in a container whose files are the root: with all that the units forbid.

    Its port is in use at first, and for longer than systemd's limit of five starts would take.
    """
    admin = configure(root)
    port = tomllib.loads((root / CONFIGURATION).read_text())["port"]
    other = socket.create_server(("127.0.0.1", port))
    podman = Podman(tmp_path)
    podman(
        *("run", "--detach", "--name=debian", "--privileged", "--network=host", "--systemd=always"),
        *(*LIMITS, "--rootfs", root, "/lib/systemd/systemd"),
    )

    def within(*words: str, status: int = 0) -> str:
        said = "--env=DEBIAN_FRONTEND=noninteractive"
        return podman("exec", said, "debian", *words, status=status)

    def shown(name: str) -> int:
        return int(within("systemctl", "show", "--value", f"--property={name}", "tablestone"))

    try:
        end = time.monotonic() + SECONDS_MAX
        # The socket of a systemd is not there at once.
        while within("sh", "-c", "test -S /run/systemd/private; echo $?") != "0":
            assert time.monotonic() < end
            time.sleep(0.1)
        end = time.monotonic() + SECONDS_MAX
        with other:
            while shown("NRestarts") < 6:
                assert time.monotonic() < end
                time.sleep(0.5)
        end = time.monotonic() + SECONDS_MAX
        while not is_ready(admin):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert within("systemctl", "is-active", "tablestone") == "active"
        within("systemctl", "reload", "tablestone")
        within("systemctl", "start", "tablestone-backup.service")
        assert list((root / DATA[1]).glob("tablestone-*.db"))
        within("systemctl", "enable", "--quiet", "--now", "tablestone-backup.timer")
        before = shown("MainPID")
        within("dpkg", "--install", "/tablestone.deb")
        assert within("systemctl", "is-active", "tablestone") == "active"
        assert shown("MainPID") != before
        assert within("systemctl", "is-active", "tablestone-backup.timer") == "active"
        within("dpkg", "--remove", "tablestone")
        assert within("systemctl", "is-active", "tablestone", status=3) == "inactive"
        assert shown("MainPID") == 0
    finally:
        podman.end()


def test_an_upgrade_keeps_the_configuration(root: Path, tmp_path: Path) -> None:
    """To a package with another configuration: dpkg shows it beside the administrator's."""
    source = shutil.copytree(DEPLOY, tmp_path / "deploy")
    example = source / "debian" / "tablestone.toml"
    example.write_text("# new\n" + example.read_text())
    program = source / "debian" / "build"
    newer = build(program, tmp_path / "newer", SOURCE_DATE_EPOCH="1700000000")
    configure(root)
    kept = (root / CONFIGURATION).read_text()
    data = with_data(root)
    shutil.copy(newer, root / "newer.deb")
    dpkg(root, "--force-confold", "--install", "/newer.deb")
    assert (root / CONFIGURATION).read_text() == kept
    assert (root / f"{CONFIGURATION}.dpkg-dist").read_text().startswith("# new\n")
    assert data.read_text() == "data"
    assert inside(root, "systemctl", "is-enabled", "tablestone") == "enabled\n"


def test_a_service_that_is_disabled_stays_so(root: Path) -> None:
    inside(root, "systemctl", "disable", "--quiet", "tablestone")
    dpkg(root, "--install", "/tablestone.deb")
    assert inside(root, "systemctl", "is-enabled", "tablestone", status=1) == "disabled\n"


def with_data(root: Path) -> Path:
    data = root / DATA[0]
    data.write_text("data")
    return data


def test_a_removal_leaves_the_configuration_and_the_data(root: Path) -> None:
    data = with_data(root)
    dpkg(root, "--remove", "tablestone")
    assert data.exists()
    assert (root / CONFIGURATION).exists()
    assert not (root / "usr/lib/tablestone").exists()
    assert not (root / "usr/bin/tablestone").is_symlink()
    dpkg(root, "--install", "/tablestone.deb")
    assert inside(root, "systemctl", "is-enabled", "tablestone") == "enabled\n"


def test_kept_data_are_of_the_user_even_if_its_number_has_changed(root: Path) -> None:
    data = with_data(root)
    backup = root / DATA[1] / "kept"
    backup.write_text("backup")
    dpkg(root, "--purge", "tablestone")
    inside(root, "userdel", "tablestone")
    inside(root, "adduser", "--quiet", "--system", "--group", "other")
    dpkg(root, "--install", "/tablestone.deb")
    user = int(inside(root, "id", "--user", "tablestone"))
    assert user != int(inside(root, "id", "--user", "other"))
    for each in (data, data.parent, backup, backup.parent):
        assert each.stat().st_uid == user


@pytest.mark.parametrize("is_told", [False, True])
def test_a_purge_keeps_the_data_unless_it_is_told(root: Path, *, is_told: bool) -> None:
    data = with_data(root)
    if is_told:
        answer = "tablestone tablestone/delete-data boolean true"
        inside(root, "sh", "-c", f"echo {answer} | debconf-set-selections")
    dpkg(root, "--purge", "tablestone")
    assert data.exists() is not is_told
    assert (root / DATA[1]).exists() is not is_told
    assert not (root / CONFIGURATION).exists()
    assert "tablestone" not in inside(root, "sh", "-c", "ls /etc/systemd/system/*.wants")
    inside(root, "id", "tablestone")
