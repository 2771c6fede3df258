"""Start a server and wait for its end: the listening socket, its certificate, and one process behind it or several.

What one process does is `worker`'s, how several share the socket `supervisor`'s. Knows nothing of the service.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tablestone.clock import system_clock
from tablestone.engines.contract import EngineRefused, StorageId
from tablestone.engines.registry import held_for_processes
from tablestone.server.app import create_application
from tablestone.server.configuration import (
    CertificateFiles,
    Configuration,
    Place,
    SelfSigned,
    TrustedIssuer,
)
from tablestone.server.handover import WorkerEnd
from tablestone.server.supervisor import Supervisor
from tablestone.server.tls import CertificateRefused, ServedCertificate
from tablestone.server.worker import (
    BACKLOG,
    CONNECTIONS_MAX,
    CreateApplication,
    StartRefused,
    Worker,
)

OnReady = Callable[[str], None]
"""Told the base address, `http://HOST:PORT` or https, once connections are answered."""
HoldStorage = Callable[[str], AbstractContextManager[StorageId | None]]
"""Holds the storage that an engine's URL names for all processes of a server, and says which it is; `EngineRefused` if
it cannot be had."""


def serve(
    configuration: Configuration,
    on_ready: OnReady,
    create: CreateApplication = create_application,
    hold: HoldStorage = held_for_processes,
) -> None:
    """Serve until SIGINT or SIGTERM. `StartRefused` if the port, the data or the certificate cannot be had."""
    if isinstance(configuration.tls, CertificateFiles):
        open_certificate(configuration.tls)  # what is wrong with it is told before data is touched
    _require_key_files(configuration.tokens.issuers)
    with listen(configuration.host, configuration.port) as listener:
        _allow_many_connections()
        address = base_address(listener, "https" if configuration.tls else "http")
        serve_on = _serve_alone if configuration.workers == 1 else _serve_together
        try:
            serve_on(listener, configuration, lambda: on_ready(address), create, hold)
        except EngineRefused as refused:
            raise StartRefused(str(refused)) from None


def _serve_alone(
    listener: socket.socket,
    configuration: Configuration,
    on_ready: Callable[[], None],
    create: CreateApplication,
    _hold: HoldStorage,
) -> None:
    def certificate() -> ServedCertificate | None:
        return None if configuration.tls is None else open_certificate(configuration.tls)

    Worker(configuration, Place(), create, certificate).run(listener, on_ready)


def _serve_together(
    listener: socket.socket,
    configuration: Configuration,
    on_ready: Callable[[], None],
    create: CreateApplication,
    hold: HoldStorage,
) -> None:
    with hold(configuration.engine) as storage:
        # One for all, so that what a client got from one worker to resume its session with is good at another.
        certificate = None if configuration.tls is None else open_certificate(configuration.tls)

        def run(number: int, end: WorkerEnd) -> None:
            place = Place(number, configuration.workers, storage)
            Worker(configuration, place, create, lambda: certificate).run(end, end.tell_ready)

        # The supervisor follows the files too: a worker that replaces another begins with the last good pair.
        look = None if certificate is None else certificate.follow
        Supervisor(listener, configuration.workers, run, look).run(on_ready)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that nobody else has: without SO_REUSEPORT, which lets two servers share a port unseen."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            address, family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        raise StartRefused(
            f"Cannot listen on {_authority(host, port)}: {_reason(error)}."
        ) from None
    # What is accepted inherits this: an answer leaves when it is written, not when the last one was acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def base_address(listener: socket.socket, scheme: str = "http") -> str:
    """Where a client on this machine finds the listener."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://{_authority(reachable, port)}"


def open_certificate(tls: CertificateFiles | SelfSigned) -> ServedCertificate:
    """The certificate to answer handshakes with; one of our own is made if it has to be. Raises `StartRefused`."""
    try:
        if isinstance(tls, CertificateFiles):
            return ServedCertificate(tls)
        from tablestone.server.self_signed import keeper  # noqa: PLC0415 - imports a library for it

        return ServedCertificate(tls.files, keeper(tls, system_clock))
    except CertificateRefused as refused:
        raise StartRefused(str(refused)) from None


def _require_key_files(issuers: Sequence[TrustedIssuer]) -> None:
    """A file that has no keys now was named wrongly; an address may be had later."""
    for issuer in issuers:
        if issuer.keys_file is None:
            continue
        from tablestone.auth.json_web_keys import NO_KEY, read_keys  # noqa: PLC0415 - cryptography loads slowly

        whose = f"The keys of {issuer.name} cannot be read from {issuer.keys_file}"
        try:
            keys = read_keys(issuer.keys_file.read_bytes())
        except OSError as error:
            raise StartRefused(f"{whose}: {_reason(error)}.") from None
        except ValueError as error:
            raise StartRefused(f"{whose}: {error}.") from None
        if not keys:  # while a server runs that would withdraw the keys
            raise StartRefused(f"{whose}: {NO_KEY}.")


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the address is not known"
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _allow_many_connections() -> None:
    """Raise the soft limit of open files, often 1,024, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
