"""The message for a cluster that cannot be reached, and for unusable files named in its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("cassandra.cluster", reason="no driver: pip install '.[cassandra]'")

import cassandra
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown, ProtocolError
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from certificates import certificate_pem, make_key
from tablestone.engines.cassandra.cluster_url import parse_address
from tablestone.engines.cassandra.session import credentials, refusal, tls_context
from tablestone.engines.contract import EngineRefused

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "cassandra://h:1/k"
TLS = PLAIN + "?tls=yes"
NOT_ANSWERED = "No Cassandra node answers at h:1: "
NO_TLS = "There is no TLS connection to the cluster at h:1: "
TRIED = "Tried connecting to [('127.0.0.1', 1)]. Last error: "


@pytest.mark.parametrize(
    ("url", "cause", "sentence"),
    [
        (PLAIN, ConnectionRefusedError(111, TRIED), NOT_ANSWERED + "Connection refused."),
        *(
            (PLAIN, silent, NOT_ANSWERED + "it did not answer in time.")
            for silent in (
                cassandra.OperationTimedOut("Timed out creating connection (10.0 seconds)"),
                TimeoutError("timed out"),
                OSError(None, TRIED + "timed out"),
            )
        ),
        (
            PLAIN,
            ConnectionShutdown("Connection to h:1 was closed"),
            NOT_ANSWERED + "it ends the connection, as a node does that wants TLS (tls=yes).",
        ),
        (
            PLAIN,
            ProtocolError("Unexpected response during Connection setup: …"),
            NOT_ANSWERED + "it does not speak the protocol of Cassandra 5.0.",
        ),
        (PLAIN, ValueError("<object at 0x7f>"), NOT_ANSWERED + "the connection cannot be opened."),
        *(
            (TLS, OSError(1, TRIED + reason), NO_TLS + "the node does not speak TLS.")
            for reason in (
                "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
                "[SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:1032)",
            )
        ),
        (
            TLS,
            OSError(
                1,
                TRIED + "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
                "certificate (_ssl.c:1006)",
            ),
            NO_TLS + "its certificate is not trusted (self-signed certificate).",
        ),
        (
            TLS,
            OSError(1, TRIED + "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert (_ssl.c:1)"),
            NO_TLS
            + "the node may want a certificate of its client (certificate-file and key-file).",
        ),
        (
            TLS,
            OSError(1, TRIED + "[SSL: NO_PROTOCOLS_AVAILABLE] no protocols (_ssl.c:1)"),
            NO_TLS + "no protocols available.",
        ),
        (
            TLS,
            OSError(8, TRIED + "EOF occurred in violation of protocol (_ssl.c:1006)"),
            NO_TLS + "the node ends it.",
        ),
        (TLS, ConnectionRefusedError(111, TRIED), NOT_ANSWERED + "Connection refused."),
        (
            PLAIN,
            cassandra.AuthenticationFailed("Bad credentials"),
            "The cluster at h:1 refuses the credentials without a user.",
        ),
    ],
)
def test_the_cause_of_the_driver_is_a_sentence(url: str, cause: Exception, sentence: str) -> None:
    address = parse_address(url)
    assert str(refusal(address, NoHostAvailable("none", {"h:1": cause}))) == sentence
    assert str(refusal(address, cause)) == sentence


def test_the_first_cause_with_a_sentence_of_its_own_counts() -> None:
    causes = {"a": ConnectionRefusedError(111, TRIED), "b": OSError(1, "[SSL: UNKNOWN_PROTOCOL]")}
    told = refusal(parse_address(TLS), NoHostAvailable("none", causes))
    assert str(told) == NO_TLS + "the node does not speak TLS."


def test_a_file_of_the_url_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    key = make_key("rsa")
    text, certificate, locked = tmp_path / "text", tmp_path / "cert.pem", tmp_path / "key.pem"
    text.write_text("none")
    certificate.write_bytes(certificate_pem(key, "node"))
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    absent = tmp_path / "absent"
    pair = (
        f"The certificate-file {certificate} and the key-file %s hold no certificate in PEM form with its key, which "
        "has no password."
    )
    for options, sentence in (
        (f"ca-file={absent}", f"The ca-file {absent} cannot be read: No such file or directory."),
        (f"ca-file={tmp_path}", f"The ca-file {tmp_path} cannot be read: Is a directory."),
        (f"ca-file={text}", f"The ca-file {text} holds no certificate in PEM form."),
        (
            f"certificate-file={certificate}&key-file={absent}",
            f"The key-file {absent} cannot be read: No such file or directory.",
        ),
        (f"certificate-file={certificate}&key-file={text}", pair % text),
        (f"certificate-file={certificate}&key-file={locked}", pair % locked),
    ):
        with pytest.raises(EngineRefused) as refused:
            tls_context(parse_address(f"{TLS}&{options}"))
        assert str(refused.value) == sentence


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(EngineRefused) as refused:
        credentials(parse_address(f"cassandra://me@h/k?password-file={file}"))
    assert str(refused.value) == f"The password file {file} cannot be read: it is no UTF-8 text."
