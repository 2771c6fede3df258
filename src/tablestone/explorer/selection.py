"""What is done with the selected entities: delete them, or copy them as JSON, as a filter, or as code for an SDK.

The code reads an entity, or runs a query, with the official SDK of five languages. It takes the connection string from
the environment, so that no key is ever in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.client import Operation, RawEntity
from tablestone.tools.errors import ServiceError, TransferRefused
from tablestone.tools.writing import quoted

DELETED_TOGETHER_MAX: Final = 100
"""Entities of one partition that an entity group transaction deletes."""
COPIED_MAX: Final = 1000
"""Entities that are copied at a time."""
POINTS_IN_FILTER_MAX: Final = 100


def ask_selected(request: Request, form: PostedForm) -> Response:
    """The question before the selected entities are deleted."""
    keys = _selected(form)
    table = request.path_params["table"]
    return page(request, "delete_entities.html", table=table, keys=keys, rows=form.texts("row"))


def delete_selected(request: Request, form: PostedForm) -> Response:
    """Delete the selected entities, each partition in transactions; the page says how many there were."""
    table = request.path_params["table"]
    endpoint = account_of(request).endpoint
    by_partition: dict[str, list[EntityKey]] = {}
    for key in _selected(form):
        by_partition.setdefault(key.partition_key, []).append(key)
    deleted = 0
    sentences = []
    for partition, keys in by_partition.items():
        for start in range(0, len(keys), DELETED_TOGETHER_MAX):
            part = keys[start : start + DELETED_TOGETHER_MAX]
            try:
                endpoint.transact(table, [Operation("DELETE", key, if_match="*") for key in part])
            except ServiceError as error:
                sentences.append(f"Nothing of {len(part)} in {partition!r} is deleted: {error}")
            else:
                deleted += len(part)
    noun = "entity is" if deleted == 1 else "entities are"
    return page(
        request,
        "done.html",
        changed=True,
        table=table,
        sentences=[f"{deleted:,} {noun} deleted.", *sentences],
        status=409 if sentences else 200,
    )


def copy(request: Request, form: PostedForm) -> Response:
    """The selected entities as JSON, as a filter, or as code in a language."""
    table = request.path_params["table"]
    keys = _selected(form)
    wanted = form.text("as", "JSON")
    if len(keys) > COPIED_MAX:
        raise TransferRefused(f"At most {COPIED_MAX:,} entities are copied at a time.")
    if wanted == "JSON":
        endpoint = account_of(request).endpoint
        found = [raw for key in keys if (raw := endpoint.get(table, key)) is not None]
        text = "".join(_as_json(raw) for raw in found)
    elif wanted == "filter":
        text = filter_of(keys)
    elif wanted in LANGUAGES:
        text = (
            point_code(wanted, table, keys[0])
            if len(keys) == 1
            else query_code(wanted, table, filter_of(keys))
        )
    else:
        raise TransferRefused(f"There is no copy as {wanted[:40]}.")
    return page(request, "copied.html", table=table, text=text, wanted=wanted, count=len(keys))


def filter_of(keys: Sequence[EntityKey]) -> str:
    """The filter that finds these entities; `TransferRefused` if there are too many for a filter."""
    if len(keys) > POINTS_IN_FILTER_MAX:
        raise TransferRefused(f"At most {POINTS_IN_FILTER_MAX} entities are copied as a filter.")
    points = [f"PartitionKey eq {quoted(pk)} and RowKey eq {quoted(rk)}" for pk, rk in keys]
    return points[0] if len(points) == 1 else " or ".join(f"({point})" for point in points)


def _as_json(raw: RawEntity) -> str:
    """An entity as JSON with its types, as `tablestone import` reads it."""
    return orjson.dumps(odata.content_of(raw)).decode("utf-8") + "\n"


def _selected(form: PostedForm) -> list[EntityKey]:
    found = []
    for text in form.texts("row"):
        try:
            keys = orjson.loads(text)
        except ValueError:
            keys = None
        if not (isinstance(keys, list) and [type(key) for key in keys] == [str, str]):
            raise TransferRefused("A selected row is not known: load the page again.")
        found.append(EntityKey(*keys))
    if not found:
        raise TransferRefused("Select entities first: with their boxes, or with the space bar.")
    return found


VARIABLE: Final = "AZURE_STORAGE_CONNECTION_STRING"
LANGUAGES: Final = ("Python", "JavaScript", "Go", "Java", "C#")


def _literal(text: str) -> str:
    """A string literal that all five languages read: escapes of JSON, in ASCII, surrogates as pairs."""
    return json.dumps(text)


def _go_literal(text: str) -> str:
    """A string literal of Go, which knows no surrogates."""
    return _by_code_point(text, lambda number: f"\\U{number:08x}")


def _python_literal(text: str) -> str:
    return _by_code_point(text, lambda number: f"\\U{number:08x}")


def _by_code_point(text: str, of_high: Callable[[int], str]) -> str:
    parts = [json.dumps(each)[1:-1] if ord(each) < 0x10000 else of_high(ord(each)) for each in text]
    return f'"{"".join(parts)}"'


def _python_point(table: str, key: EntityKey) -> str:
    pk, rk = map(_python_literal, key)
    return f"""import os
from azure.data.tables import TableClient

table = TableClient.from_connection_string(os.environ["{VARIABLE}"], {_python_literal(table)})
entity = table.get_entity({pk}, {rk})
"""


def _python_query(table: str, filter_text: str) -> str:
    asked = f"query_entities({_python_literal(filter_text)})" if filter_text else "list_entities()"
    return f"""import os
from azure.data.tables import TableClient

table = TableClient.from_connection_string(os.environ["{VARIABLE}"], {_python_literal(table)})
for entity in table.{asked}:
    print(entity)
"""


def _javascript_client(table: str) -> str:
    return f"""import {{ TableClient }} from "@azure/data-tables";

const table = TableClient.fromConnectionString(process.env.{VARIABLE}, {_literal(table)});
"""


def _javascript_point(table: str, key: EntityKey) -> str:
    pk, rk = map(_literal, key)
    return f"{_javascript_client(table)}const entity = await table.getEntity({pk}, {rk});\n"


def _javascript_query(table: str, filter_text: str) -> str:
    options = f"{{ queryOptions: {{ filter: {_literal(filter_text)} }} }}" if filter_text else ""
    return f"""{_javascript_client(table)}for await (const entity of table.listEntities({options})) {{
  console.log(entity);
}}
"""


def _go_client(table: str) -> str:
    return f"""service, err := aztables.NewServiceClientFromConnectionString(os.Getenv("{VARIABLE}"), nil)
if err != nil {{
	log.Fatal(err)
}}
table := service.NewClient({_go_literal(table)})
"""


def _go_point(table: str, key: EntityKey) -> str:
    pk, rk = map(_go_literal, key)
    return f"""{_go_client(table)}entity, err := table.GetEntity(context.TODO(), {pk}, {rk}, nil)
"""


def _go_query(table: str, filter_text: str) -> str:
    options = "nil"
    before = ""
    if filter_text:
        before = f"filter := {_go_literal(filter_text)}\n"
        options = "&aztables.ListEntitiesOptions{Filter: &filter}"
    return f"""{_go_client(table)}{before}pager := table.NewListEntitiesPager({options})
for pager.More() {{
	page, err := pager.NextPage(context.TODO())
	if err != nil {{
		log.Fatal(err)
	}}
	for _, entity := range page.Entities {{
		fmt.Println(string(entity))
	}}
}}
"""


def _java_client(table: str) -> str:
    return f"""TableClient table = new TableClientBuilder()
    .connectionString(System.getenv("{VARIABLE}"))
    .tableName({_literal(table)})
    .buildClient();
"""


def _java_point(table: str, key: EntityKey) -> str:
    pk, rk = map(_literal, key)
    return f"{_java_client(table)}TableEntity entity = table.getEntity({pk}, {rk});\n"


def _java_query(table: str, filter_text: str) -> str:
    options = ""
    if filter_text:
        options = f"new ListEntitiesOptions().setFilter({_literal(filter_text)}), null, null"
    return f"""{_java_client(table)}for (TableEntity entity : table.listEntities({options})) {{
    System.out.println(entity.getProperties());
}}
"""


def _c_sharp_client(table: str) -> str:
    return f"""var table = new TableClient(
    Environment.GetEnvironmentVariable("{VARIABLE}"), {_literal(table)});
"""


def _c_sharp_point(table: str, key: EntityKey) -> str:
    pk, rk = map(_literal, key)
    return f"""{_c_sharp_client(table)}TableEntity entity = await table.GetEntityAsync<TableEntity>({pk}, {rk});
"""


def _c_sharp_query(table: str, filter_text: str) -> str:
    asked = f"filter: {_literal(filter_text)}" if filter_text else ""
    return f"""{_c_sharp_client(table)}await foreach (TableEntity entity in table.QueryAsync<TableEntity>({asked}))
{{
    Console.WriteLine(entity.RowKey);
}}
"""


_POINTS: Final[Mapping[str, Callable[[str, EntityKey], str]]] = dict(
    zip(
        LANGUAGES,
        (_python_point, _javascript_point, _go_point, _java_point, _c_sharp_point),
        strict=True,
    )
)
_QUERIES: Final[Mapping[str, Callable[[str, str], str]]] = dict(
    zip(
        LANGUAGES,
        (_python_query, _javascript_query, _go_query, _java_query, _c_sharp_query),
        strict=True,
    )
)


def point_code(language: str, table: str, key: EntityKey) -> str:
    """The code that reads one entity."""
    return _POINTS[language](table, key)


def query_code(language: str, table: str, filter_text: str) -> str:
    """The code that runs a query; an empty filter is for all entities."""
    return _QUERIES[language](table, filter_text)


POSTED: Final = {"/tables/{table}/copy": copy}
CHANGES: Final = {
    "/tables/{table}/selected": ask_selected,
    "/tables/{table}/selected/delete": delete_selected,
}
