"""The signature form in a real browser: the official SDK uses each signature that it makes.

What the service would refuse, the form refuses in a sentence.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableAccessPolicy, TableClient, TableServiceClient

from explorer.install import missing
from explorer.pages_in_browser import WatchedPage
from server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

Filled = Mapping[str, str | bool]
"""Values of controls by label; the others stay as the page has them: read is chosen, the table is Weather."""
END = "2100-01-01T00:00:00Z"
POLICIES = {
    "whole": TableAccessPolicy(permission="r", expiry=END),
    "endless": TableAccessPolicy(permission="r"),
    "powerless": TableAccessPolicy(expiry=END),
    "ended": TableAccessPolicy(permission="r", expiry="2020-01-01T00:00:00Z"),
    "later": TableAccessPolicy(permission="r", start="2090-01-01T00:00:00Z"),
}
FORM = "[data-control='signature.form']"
JFK, LGA = ("JFK", "2013-01-01T00:00"), ("LGA", "2013-01-01T00:00")

MADE: dict[str, tuple[Filled, str, str]] = {
    # the form, the answer to reading an entity at JFK, and one at LGA: an error code, or nothing
    "as the form is": ({}, "", ""),
    "until a time": ({"Expires (UTC)": "2100-01-01T00:00:00"}, "", ""),
    "an address": ({"Addresses of clients": "127.0.0.1"}, "", ""),
    "other addresses": (
        {"Addresses of clients": "10.0.0.1-10.0.0.9"},
        "AuthorizationSourceIPMismatch",
        "AuthorizationSourceIPMismatch",
    ),
    "HTTPS": (
        {"over HTTPS only: nobody could use it at this address, which is plain HTTP": True},
        "AuthorizationProtocolMismatch",
        "AuthorizationProtocolMismatch",
    ),
    "a range of keys": (
        {
            "First PartitionKey": "JFK",
            "First RowKey": "2013-01-01T00:00",
            "Last PartitionKey": "JFK",
            "Last RowKey": "2013-01-02",
        },
        "",
        "ResourceNotFound",
    ),
    "without read": (
        {"read": False, "add": True},
        "AuthorizationPermissionMismatch",
        "AuthorizationPermissionMismatch",
    ),
    "a policy, which has the permissions and the end": ({"Policy of the table": "whole"}, "", ""),
    "a policy without an end": ({"Policy of the table": "endless", "read": False}, "", ""),
    "a policy, and an end": (
        {"Policy of the table": "endless", "read": False, "Expires (UTC)": "2099-12-31T00:00"},
        "",
        "",
    ),
    "a policy, and permissions": ({"Policy of the table": "powerless"}, "", ""),
    "the account": ({"Table": "", "list": True}, "", ""),
}

REFUSED: dict[str, tuple[Filled, str]] = {
    "nothing": ({"read": False}, "Choose what the signature allows"),
    "an end that has passed": (
        {"Expires (UTC)": "2013-01-01T00:00"},
        "The signature would have ended already, at 2013-01-01T00:00:00Z.",
    ),
    "no permissions": (
        {"Policy of the table": "powerless", "read": False},
        "The policy 'powerless' has no permissions",
    ),
    "no such policy": ({"Policy of the table": "gone"}, "The table Weather has no policy 'gone'."),
    "no address": ({"Addresses of clients": "notanip"}, "not 'notanip'."),
    "three addresses": ({"Addresses of clients": "10.0.0.1-10.0.0.2-10.0.0.3"}, "two with a hyphen"),
    "addresses of two kinds": ({"Addresses of clients": "10.0.0.1-::1"}, "two with a hyphen"),
    "addresses that end before they begin": (
        {"Addresses of clients": "10.0.0.9-10.0.0.1"}, "the lower one first, not '10.0.0.9-10.0.0.1'",
    ),
    "a first RowKey alone": ({"First RowKey": "a"}, "The first RowKey needs the first PartitionKey."),
    "a last RowKey alone": ({"Last RowKey": "a"}, "The last RowKey needs the last PartitionKey."),
    "keys that end before they begin": (
        {"First PartitionKey": "z", "Last PartitionKey": "a"}, "The last PartitionKey is before the first one",
    ),
    "RowKeys that end before they begin": (
        {"First PartitionKey": "a", "First RowKey": "z", "Last PartitionKey": "a", "Last RowKey": "a"},
        "The last RowKey is before the first one",
    ),
    "a policy that has ended": ({"Policy of the table": "ended", "read": False}, "The policy 'ended' has ended"),
    "a policy that begins later": ({"Policy of the table": "later", "read": False}, "The policy 'later' begins at"),
    "no name of a table": ({"Table": "a-b"}, "'a-b' is not a table name."),
}  # fmt: skip


@pytest.fixture(scope="module")
def with_policies(filled_server: ServerProcess) -> ServerProcess:
    with TableServiceClient.from_connection_string(filled_server.connection_string) as service:
        service.get_table_client("Weather").set_table_access_policy(dict(POLICIES))
    return filled_server


LISTS = {"Table": "table", "Policy of the table": "policy"}


def choose(watched: WatchedPage, label: str, value: str) -> None:
    """Choose from a list; if it lacks the value, the table or policy has gone since the page was shown."""
    control = watched.page.locator(f"label:has-text('{label}') [name={LISTS[label]}]")
    control.evaluate(
        "(list, text) => [...list.options].some((each) => each.value === text) || list.add(new Option(text))",
        value,
    )
    control.select_option(value=value)


def ask_for(watched: WatchedPage, filled: Filled) -> None:
    watched.open("/signature?table=Weather")
    for label, value in filled.items():
        if label in LISTS:
            choose(watched, label, str(value))
            continue
        control = watched.page.get_by_label(label, exact=True)
        if isinstance(value, bool):
            control.set_checked(value)
        else:
            control.fill(value)
    watched.page.get_by_role("button", name="Make the signature").click()


def read(server: ServerProcess, signature: str, key: tuple[str, str]) -> str:
    """The error code of a read with the signature, or nothing."""
    credential = AzureSasCredential(signature)
    with TableClient(server.endpoint, "Weather", credential=credential) as client:
        try:
            client.get_entity(*key)
        except HttpResponseError as error:
            code: Any = getattr(error, "error_code", "")
            return str(getattr(code, "value", code))
    return ""


@pytest.mark.parametrize("case", MADE)
def test_a_signature_that_is_made_is_one_that_the_server_takes(
    watched: WatchedPage, with_policies: ServerProcess, case: str
) -> None:
    filled, at_jfk, at_lga = MADE[case]
    ask_for(watched, filled)
    watched.page.wait_for_selector("#made [data-copy]")
    signed = watched.page.locator("#made [data-copy]").input_value()
    signature = signed.partition("?")[2]
    answers = read(with_policies, signature, JFK), read(with_policies, signature, LGA)
    assert answers == (at_jfk, at_lga)


@pytest.mark.parametrize("case", REFUSED)
def test_a_signature_that_the_server_would_refuse_is_not_made(
    watched: WatchedPage, with_policies: ServerProcess, case: str
) -> None:
    assert with_policies.process.poll() is None
    filled, sentence = REFUSED[case]
    ask_for(watched, filled)
    watched.page.locator(f"{FORM} .problem").filter(has_text=sentence).wait_for()
    assert watched.page.locator("#made [data-copy]").count() == 0
    wrong = watched.page.locator(f"{FORM} [aria-invalid]")
    assert wrong.get_attribute("aria-describedby") == "wrong-field"
    beside = "(each) => (each.closest('.field') ?? each.closest('label')).nextElementSibling.id"
    assert wrong.evaluate(beside) == "wrong-field"


def test_what_does_not_apply_is_disabled(watched: WatchedPage) -> None:
    """Without a table its policy and keys; with one, the permissions that only an account can give."""
    page = watched.page
    watched.open("/signature?table=Weather")
    of_table = ("First PartitionKey", "Last RowKey")
    of_account = ("write", "list", "create")
    for table, enabled, disabled in (("Weather", of_table, of_account), ("", of_account, of_table)):
        choose(watched, "Table", table)
        assert all(page.get_by_label(each, exact=True).is_enabled() for each in enabled)
        assert all(page.get_by_label(each, exact=True).is_disabled() for each in disabled)
        assert page.locator("[name=policy]").is_enabled() == bool(table)


def test_what_a_policy_has_is_disabled(watched: WatchedPage, with_policies: ServerProcess) -> None:
    assert with_policies.process.poll() is None
    page = watched.page
    watched.open("/signature?table=Weather")
    fields = [page.get_by_label(each, exact=True) for each in ("read", "delete", "Expires (UTC)")]
    for policy, enabled in (
        ("whole", [False, False, False]),
        ("endless", [False, False, True]),
        ("powerless", [True, True, False]),
        ("", [True, True, True]),
    ):
        choose(watched, "Policy of the table", policy)
        assert [each.is_enabled() for each in fields] == enabled, policy
        assert bool(fields[2].input_value()) == enabled[2], "the filled-in expiry comes back"


@pytest.mark.parametrize(
    ("forced", "sentence"),
    [
        ("may_r.checked = true", "has permissions (r)"),
        ("end.value = '2099-12-31T00:00'", "The policy 'whole' has an end (2100-01-01T00:00:00"),
    ],
)
def test_what_a_policy_has_is_refused_a_second_time(
    watched: WatchedPage, with_policies: ServerProcess, forced: str, sentence: str
) -> None:
    """The policy may have changed since the page was shown."""
    assert with_policies.process.poll() is None
    page = watched.page
    watched.open("/signature?table=Weather")
    choose(watched, "Policy of the table", "whole")
    field = (
        f"document.querySelector('[data-control=\"signature.form\"]').{forced.partition('.')[0]}"
    )
    page.evaluate(f"{field}.disabled = false")
    page.evaluate(f"{field}.{forced.partition('.')[2]}")
    page.get_by_role("button", name="Make the signature").click()
    page.locator(f"{FORM} .problem").filter(has_text=sentence).wait_for()


def test_a_signature_of_the_account_serves_tables_and_entities(
    watched: WatchedPage, with_policies: ServerProcess
) -> None:
    """For each kind of resource: the signature creates, lists and deletes tables."""
    letters: dict[str, str | bool] = dict.fromkeys(
        ("write", "delete", "list", "add", "create", "update"), True
    )
    ask_for(watched, {"Table": "", **letters})
    watched.page.wait_for_selector("#made [data-copy]")
    signature = watched.page.locator("#made [data-copy]").input_value().partition("?")[2]
    endpoint: Any = with_policies.endpoint
    with TableServiceClient(endpoint, credential=AzureSasCredential(signature)) as service:
        table = service.create_table("Signed")
        table.upsert_entity({"PartitionKey": "a", "RowKey": "b"})
        assert "Signed" in [each.name for each in service.list_tables()]
        service.delete_table("Signed")


def test_the_policies_are_those_of_the_chosen_table(
    watched: WatchedPage, with_policies: ServerProcess
) -> None:
    """What was typed stays; the expiry is filled in; the URL is whole in sight."""
    assert with_policies.process.poll() is None
    page = watched.page
    watched.open("/signature")
    assert page.locator("[name=end]").input_value().startswith("20")
    page.get_by_label("Addresses of clients").fill("127.0.0.1")
    policies = (
        "[...document.querySelectorAll('[name=policy] option')].map((each) => each.value).join()"
    )
    for table, listed in (
        ("Weather", ",whole,endless,powerless,ended,later"),
        ("Empty", ""),
        ("", ""),
    ):
        choose(watched, "Table", table)
        watched.wait_until(f"{policies} === '{listed}'")
        assert page.locator("[name=policy]").input_value() == ""
        assert page.get_by_label("read", exact=True).is_checked()
    assert page.get_by_label("Addresses of clients").input_value() == "127.0.0.1"
    page.get_by_role("button", name="Make the signature").click()
    page.wait_for_selector("#made [data-copy]")
    is_whole = (
        "(each) => each.scrollWidth <= each.clientWidth && each.scrollHeight <= each.clientHeight"
    )
    assert page.locator("#made [data-copy]").evaluate(is_whole)
