"""The XML documents of the service: a written document is read as the same value; any other raises `StorageError`."""

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone import limits
from tablestone.model.edm import DATE_TIME_MAX, utf16_length
from tablestone.model.errors import StorageError
from tablestone.model.operations import AccessPolicy, SignedIdentifier
from tablestone.model.service_properties import (
    FRESH,
    CorsRule,
    Logging,
    Metrics,
    ServiceProperties,
    from_members,
    to_members,
)
from tablestone.wire.service_resources import (
    read_service_properties,
    read_signed_identifiers,
    write_service_properties,
    write_signed_identifiers,
)
from tablestone.wire.versions import VERSION_LATEST, VERSIONS

XML_CHARACTERS = st.characters(
    blacklist_categories=("Cs", "Cc"),
    blacklist_characters="\ufffe\uffff",
    whitelist_characters="\t\n\r",
)
IDS = st.text(XML_CHARACTERS, min_size=1, max_size=limits.SIGNED_IDENTIFIER_LENGTH_MAX).filter(
    lambda text: utf16_length(text) <= limits.SIGNED_IDENTIFIER_LENGTH_MAX
)
INSTANTS = st.none() | st.integers(0, DATE_TIME_MAX)
POLICIES = st.none() | st.builds(
    AccessPolicy, INSTANTS, INSTANTS, st.sampled_from([None, "r", "raud", "du"])
).map(lambda policy: None if policy == AccessPolicy(None, None, None) else policy)
IDENTIFIERS = st.lists(
    st.builds(SignedIdentifier, IDS, POLICIES),
    max_size=limits.SIGNED_IDENTIFIERS_MAX,
    unique_by=lambda identifier: identifier.id,
).map(tuple)

DAYS = st.none() | st.integers(1, limits.RETENTION_DAYS_MAX)
METRICS = st.builds(Metrics, st.just(value=False), st.none(), DAYS) | st.builds(
    Metrics, st.just(value=True), st.booleans(), DAYS
)
ORIGINS = st.text(string.ascii_letters + string.digits + "-./:<&", min_size=1, max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "-.&'|", min_size=1, max_size=20)
LISTS = st.tuples(
    st.lists(NAMES, max_size=3), st.lists(NAMES.map("{}*".format) | st.just("*"), max_size=2)
).map(lambda lists: (*lists[0], *lists[1]))
METHODS = ("DELETE", "GET", "HEAD", "MERGE", "PATCH", "POST", "OPTIONS", "PUT")
RULES = st.builds(
    CorsRule,
    st.lists(ORIGINS, min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(METHODS), min_size=1, max_size=3).map(tuple),
    LISTS,
    LISTS,
    st.integers(0, 2**31 - 1),
)
PROPERTIES = st.builds(
    ServiceProperties,
    st.builds(Logging, st.booleans(), st.booleans(), st.booleans(), DAYS),
    METRICS,
    METRICS,
    st.lists(RULES, max_size=limits.CORS_RULES_MAX).map(tuple),
)


@given(IDENTIFIERS)
def test_policies_that_are_written_are_read_again(
    identifiers: tuple[SignedIdentifier, ...],
) -> None:
    assert read_signed_identifiers(write_signed_identifiers(identifiers)) == identifiers


def test_a_policy_may_have_its_letters_in_any_order() -> None:
    identifiers = (SignedIdentifier("a", AccessPolicy(None, None, "dur")),)
    assert read_signed_identifiers(write_signed_identifiers(identifiers)) == identifiers


@given(PROPERTIES)
def test_properties_that_are_written_are_read_again(properties: ServiceProperties) -> None:
    document = write_service_properties(properties, VERSION_LATEST)
    changes = read_service_properties(document, VERSION_LATEST)
    assert replace(FRESH, **changes) == properties


@given(PROPERTIES)
def test_properties_that_are_stored_are_read_again(properties: ServiceProperties) -> None:
    members = to_members(properties)
    assert members["default_version"] is None, "earlier builds need it"
    assert from_members(members) == properties
    assert from_members({**members, "default_version": "2019-02-02"}) == properties


FRAGMENTS = st.sampled_from(
    [
        *("<StorageServiceProperties>", "</StorageServiceProperties>", "<Logging>", "</Logging>"),
        *("<SignedIdentifiers>", "</SignedIdentifiers>", "<SignedIdentifier>", "<Id>a</Id>"),
        *("</SignedIdentifier>", "<AccessPolicy>", "<Start>2024", "</Start>", "</AccessPolicy>"),
        *("<Cors>", "<CorsRule />", "</Cors>", "<Version>1.0</Version>", "&#0;", "<!--", "-->"),
        *("<![CDATA[", "]]>", "<?pi ?>", "\ufeff", "\0", " ", "&amp;", "<Enabled>", "</Enabled>"),
    ]
)


@given(st.lists(FRAGMENTS | st.text(max_size=3), max_size=12).map("".join) | st.text())
def test_what_is_no_document_is_one_error(text: str) -> None:
    body = text.encode("utf-8", "replace")
    for read in (
        read_signed_identifiers,
        lambda body: read_service_properties(body, VERSION_LATEST),
        lambda body: read_service_properties(body, min(VERSIONS)),
    ):
        try:
            read(body)
        except StorageError as error:
            assert error.code == "InvalidXmlDocument"  # noqa: PT017 - or nothing is raised


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_every_version_reads_what_it_writes(version: str) -> None:
    properties = ServiceProperties(hour_metrics=Metrics(enabled=True, include_apis=False))
    document = write_service_properties(properties, version)
    assert replace(FRESH, **read_service_properties(document, version)) == properties
