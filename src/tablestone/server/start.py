"""Start a server and wait for its end: its listening sockets, its certificate, its one process or several."""

import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

import uvloop

from tablestone.clock import Moment, elapsed_seconds, system_clock, unix_seconds
from tablestone.configuration import (
    INSIGHT_OFF,
    AdmissionLimits,
    CertificateFiles,
    Configuration,
    SelfSigned,
    TrustedIssuer,
)
from tablestone.engines.contract import EngineRefused, StorageId
from tablestone.engines.registry import capabilities_of, held_for_processes
from tablestone.server.application import Application
from tablestone.server.asgi import AsgiApplication
from tablestone.server.connection_handover import WorkerEnd
from tablestone.server.http_server import BACKLOG
from tablestone.server.supervisor import Supervisor
from tablestone.server.tls_certificate import CertificateRefused, ServedCertificate
from tablestone.server.worker import CreateApplication, Hangup, StartRefused, serve_worker
from tablestone.server.worker_slot import WorkerSlot
from tablestone.tables.throughput_targets import SharedSlots
from tablestone.telemetry.refused_callers import QuietAddresses
from tablestone.telemetry.worker_reports import WorkerReports

logger = logging.getLogger(__name__)

OTHER_FILES: Final = 100
"""Descriptors kept for everything else: a worker needs about 30, for files, event loop and channel."""
OTHER_FILES_SHARE: Final = 4
"""If few files may be open, one in four is kept for everything else."""
BURST: Final = 1.5
"""Descriptors for each allowed connection: the surplus is for those that arrive while no other is idle."""


def allow_connections(limits: AdmissionLimits, workers: int) -> AdmissionLimits:
    """Raise the soft limit of open files, often 1,024, and return limits that fit. A warning says if they are lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.connections_max + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return limits
    fitting = connections_of(soft)
    if fitting * workers >= limits.connections_max:
        return limits
    logger.warning(
        "The limit of connections is %d and not %d, because each process may have only %d files open: raise the hard "
        "limit (ulimit -Hn, LimitNOFILE of systemd).",
        fitting * workers,
        limits.connections_max,
        soft,
    )
    return replace(limits, connections_max=fitting * workers)


def connections_of(files: int) -> int:
    """How many connections a process serves that may have this many files open."""
    left = files - min(OTHER_FILES, files // OTHER_FILES_SHARE)
    return max(1, int(left / BURST))


USUAL_PORT: Final = 10002
"""The table port of the development storage, which SDKs know and Azurite uses."""
ON_THIS_MACHINE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
"""Where a client on this machine finds a server that listens on all addresses."""
OnReady = Callable[[str, str | None], None]
"""Called once connections are answered, with the base address (`http://HOST:PORT`) and the admin address, if any."""
Mounts = Mapping[str, AsgiApplication]
"""Applications of the admin address, each with all paths below its prefix, which ends with `/`."""
Mount = Callable[[str, str], Mounts]
"""Makes these from the address of the server and the admin address. Called in the process of the admin address."""


def serve(
    configuration: Configuration,
    on_ready: OnReady,
    create: CreateApplication = Application,
    mount: Mount = lambda _address, _admin: {},
) -> None:
    """Serve until SIGINT or SIGTERM. `StartRefused` if the port, the data or the certificate cannot be used."""
    hangup = Hangup()
    if isinstance(configuration.tls, CertificateFiles):
        open_certificate(configuration.tls)  # its errors are reported before data is touched
    _require_key_files(configuration.tokens.issuers)
    _require_archive(configuration)
    is_self_signed = isinstance(configuration.tls, SelfSigned)
    listener = listen(configuration.host, configuration.port, at_once=not is_self_signed)
    with listener, ExitStack() as open_too:
        admission = allow_connections(configuration.admission, configuration.workers)
        configuration = replace(configuration, admission=admission)
        address = base_address(listener, "https" if configuration.tls else "http")
        admin: socket.socket | None = None
        if configuration.admin is not None:
            host, port = configuration.admin.host, configuration.admin.port
            admin = open_too.enter_context(listen(host, port, "--admin"))

        admin_address = None if admin is None else base_address(admin)
        tell_ready = partial(on_ready, address, admin_address)
        mounts = partial(mount, address, admin_address or "")
        try:
            if configuration.workers > 1 or admin is not None:
                _serve_together(listener, admin, configuration, tell_ready, create, hangup, mounts)
                return
            uvloop.run(
                serve_worker(
                    configuration,
                    WorkerSlot(),
                    create,
                    lambda: _opened_before(listener, configuration.tls),
                    listener,
                    tell_ready,
                    hangup,
                )
            )
        except EngineRefused as refused:
            raise StartRefused(str(refused)) from None


def _serve_together(
    listener: socket.socket,
    admin: socket.socket | None,
    configuration: Configuration,
    on_ready: Callable[[], None],
    create: CreateApplication,
    hangup: Hangup,
    mounts: Callable[[], Mounts],
) -> None:
    is_shared = capabilities_of(configuration.engine).processes
    quiet = QuietAddresses()
    reports = None if admin is None else WorkerReports(configuration.workers)
    has_insight = admin is not None and configuration.insight != INSIGHT_OFF
    insight = WorkerReports(configuration.workers) if has_insight else None
    started, began = unix_seconds(), Moment(system_clock(), elapsed_seconds())
    scans = WorkerReports(configuration.workers + 1) if configuration.auto_index else None
    shares = None if configuration.targets is None else SharedSlots()
    held: AbstractContextManager[StorageId | None] = nullcontext()
    if is_shared:
        held = held_for_processes(configuration.engine, configuration.encryption_key)
    with held as storage:
        # All workers share one certificate context, so a TLS session that began at one worker can resume at another.
        certificate = _opened_before(listener, configuration.tls)

        def run(number: int, end: WorkerEnd) -> None:
            if number == configuration.workers:
                from tablestone.server.admin.admin_process import serve_admin  # noqa: PLC0415 - only this process needs it

                assert admin is not None
                assert reports is not None
                uvloop.run(
                    serve_admin(
                        admin, configuration, storage, reports, insight, started, mounts(), end
                    )
                )
                return
            if admin is not None:
                admin.close()
            slot = WorkerSlot(
                *(number, configuration.workers, storage, reports, quiet, shares, insight),
                scans,
                began,
            )
            uvloop.run(
                serve_worker(configuration, slot, create, lambda: certificate, end, end.tell_ready)
            )

        # The supervisor follows the files too, so a replacement worker begins with the last good pair.
        look = None if certificate is None else partial(certificate.look, leads=False)
        Supervisor(
            listener,
            configuration.workers,
            run,
            look,
            hangup,
            has_admin=admin is not None,
            keeps_rows=not is_shared,
        ).run(on_ready)


def _opened_before(
    listener: socket.socket, tls: CertificateFiles | SelfSigned | None
) -> ServedCertificate | None:
    """Open the certificate before the socket listens: a client that can connect finds the file of a self-signed one."""
    certificate = open_certificate(tls)
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # another server has begun to listen since this one took the port
        raise StartRefused(
            f"Cannot listen on {base_address(listener)}: {_reason(error)}."
        ) from None
    return certificate


def listen(host: str, port: int, flag: str = "--port", *, at_once: bool = True) -> socket.socket:
    """A listening socket of this server alone: without SO_REUSEPORT, which lets two servers share a port unnoticed.

    `flag` is the option that gave the port. Unless `at_once`, the port is taken, and the caller begins to listen.
    """
    closed_on_error = ExitStack()
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = closed_on_error.enter_context(socket.socket(family))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listener.bind(address)
        if at_once:
            listener.listen(BACKLOG)
        closed_on_error.pop_all()
    except OSError as error:
        closed_on_error.close()
        sentence = f"Cannot listen on {authority(host, port)}: {_reason(error)}."
        if error.errno == errno.EADDRINUSE:
            if port == USUAL_PORT:
                sentence += (
                    " Stop the other server first: it is often another Tablestone, or Azurite."
                )
            sentence += f" {flag} 0 takes a free port."
        raise StartRefused(sentence) from None
    # Accepted connections inherit this: an answer leaves when it is written, not when the last one was acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def base_address(listener: socket.socket, scheme: str = "http") -> str:
    """The URL at which a client on this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{authority(ON_THIS_MACHINE.get(host, host), port)}"


def open_certificate(tls: CertificateFiles | SelfSigned | None) -> ServedCertificate | None:
    """The certificate for handshakes; a missing self-signed one is made. Raises `StartRefused`."""
    if tls is None:
        return None
    try:
        if isinstance(tls, CertificateFiles):
            return ServedCertificate(tls)
        from tablestone.server.self_signed_certificate import keeper  # noqa: PLC0415 - imports a library for it

        return ServedCertificate(tls.files, keeper(tls, system_clock))
    except CertificateRefused as refused:
        raise StartRefused(str(refused)) from None


def _require_archive(configuration: Configuration) -> None:
    """Refuse an archive that cannot be used before a data directory is made."""
    if configuration.archive is None:
        return
    from tablestone.archive.store import StoreRefused, open_store  # noqa: PLC0415 - an extra

    try:
        open_store(configuration.archive.url, configuration.data_directory)
    except StoreRefused as refused:
        raise StartRefused(str(refused)) from None


def _require_key_files(issuers: Sequence[TrustedIssuer]) -> None:
    """Refuse a file without keys, because its name must be wrong. An address may be reachable later."""
    for issuer in issuers:
        if issuer.keys_file is None:
            continue
        from tablestone.auth.bearer_tokens import NO_KEY, read_keys  # noqa: PLC0415 - cryptography loads slowly

        whose = f"The keys of {issuer.name} cannot be read from {issuer.keys_file}"
        try:
            keys = read_keys(issuer.keys_file.read_bytes())
        except OSError as error:
            raise StartRefused(f"{whose}: {_reason(error)}.") from None
        except ValueError as error:
            raise StartRefused(f"{whose}: {error}.") from None
        if not keys:  # while a server runs, an empty file withdraws the keys
            raise StartRefused(f"{whose}: {NO_KEY}.")


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the address is not known"
    return os.strerror(error.errno).lower() if error.errno else str(error)
