"""The options of bearer tokens, from the three sources, and the text of every refusal."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from tablestone.configuration import (
    DEVELOPMENT_TENANT,
    ENTRA_ID,
    TokenRules,
    TrustedIssuer,
)
from unit.cli.given_options import Given, Refused, configuration_of

TENANT = "11111111-2222-4333-8444-555555555555"
ENTRA = f"https://sts.windows.net/{TENANT}/"
OTHER = "https://login.example"

UNDERSTOOD = {
    "nothing given": (Given({}), TokenRules((), (), DEVELOPMENT_TENANT, ENTRA_ID)),
    "an issuer of Entra ID": (
        Given({}, command_line={"token-issuer": (ENTRA,)}),
        TokenRules((TrustedIssuer(ENTRA, None, TENANT),)),
    ),
    "issuers with their keys": (
        Given(
            {},
            environment={
                "TABLESTONE_TOKEN_ISSUER": f"{ENTRA},https://keys.example/k;{OTHER},/etc/keys.json"
            },
        ),
        TokenRules(
            (
                TrustedIssuer(ENTRA, "https://keys.example/k", TENANT),
                TrustedIssuer(OTHER, "/etc/keys.json", None),
            )
        ),
    ),
    "an issuer on this machine": (
        Given({}, command_line={"token-issuer": ("http://localhost:8080/realms/x",)}),
        TokenRules((TrustedIssuer("http://localhost:8080/realms/x", None, None),)),
    ),
    "an issuer that is no address, with keys": (
        Given({}, command_line={"token-issuer": ("urn:issuer,keys.json",)}),
        TokenRules((TrustedIssuer("urn:issuer", str(Path.cwd() / "keys.json"), None),)),
    ),
    "all of it in the file": (
        Given(
            {},
            file=f"""
                token-issuer = ["{OTHER},keys.json", "{ENTRA}"]
                token-audience = "api://tables"
                token-tenant = "{TENANT.upper()}"
                token-authority = "https://login.example:8443"
            """,
        ),
        TokenRules(
            (
                TrustedIssuer(OTHER, "BESIDE/keys.json", None),
                TrustedIssuer(ENTRA, None, TENANT),
            ),
            ("api://tables",),
            TENANT,
            "https://login.example:8443",
        ),
    ),
}
REFUSED = {
    "an issuer that is no URL": Refused(
        "--token-issuer must be ISSUER or ISSUER,KEYS, and the issuer a URL, not 'me'.",
        command_line={"token-issuer": ("me",)},
    ),
    "an issuer with half an address": Refused(
        "--token-issuer must be ISSUER or ISSUER,KEYS, and the issuer a URL, not 'https://[x'.",
        command_line={"token-issuer": ("https://[x",)},
    ),
    "an issuer whose keys cannot be found": Refused(
        "--token-issuer must be ISSUER or ISSUER,KEYS, and the issuer a URL, not 'urn:issuer'.",
        command_line={"token-issuer": ("urn:issuer",)},
    ),
    "keys over http": Refused(
        "--token-issuer has keys that others could change under way, not https: http://keys.example/k.",
        command_line={"token-issuer": (f"{OTHER},http://keys.example/k",)},
    ),
    "an issuer over http": Refused(
        "--token-issuer has keys that others could change under way, not https: http://login.example.",
        command_line={"token-issuer": ("http://login.example",)},
    ),
    "keys of an unknown kind": Refused(
        "--token-issuer has keys that others could change under way, not https: file:///keys.",
        command_line={"token-issuer": (f"{OTHER},file:///keys",)},
    ),
    "the same issuer twice": Refused(
        f"--token-issuer names the issuer {OTHER} twice.",
        command_line={"token-issuer": (OTHER, f"{OTHER},keys.json")},
    ),
    "the same issuer twice in the environment": Refused(
        f"TABLESTONE_TOKEN_ISSUER names the issuer {OTHER} twice.",
        environment={"TABLESTONE_TOKEN_ISSUER": f"{OTHER};{OTHER}"},
    ),
    "a tenant by name": Refused(
        "token-tenant in FILE must be a GUID, not 'contoso'.", file='token-tenant = "contoso"'
    ),
    "an authority with a path": Refused(
        "--token-authority must be https:// and a host, without a path, not 'https://a.example/b'.",
        command_line={"token-authority": "https://a.example/b"},
    ),
    "an authority with half an address": Refused(
        "--token-authority must be https:// and a host, without a path, not 'https://[x'.",
        command_line={"token-authority": "https://[x"},
    ),
    "an authority over http": Refused(
        "--token-authority must be https:// and a host, without a path, not 'http://a.example'.",
        command_line={"token-authority": "http://a.example"},
    ),
    "an empty audience": Refused(
        "token-audience in FILE must not be empty.", file='token-audience = [""]'
    ),
}


@pytest.mark.parametrize(("given", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, expected: TokenRules, tmp_path: Path) -> None:
    found = repr(configuration_of(given, tmp_path).tokens)
    assert found == repr(expected).replace("BESIDE", str(tmp_path))


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected
