"""The code that reads an entity, or runs a query, with the official SDK of five languages. Pure.

The code takes the connection string from the environment, so that no key is ever in it. Knows how each language writes
a text; knows no page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from tablestone.model.keys import EntityKey

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
