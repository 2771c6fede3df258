"""A page of entities written down for its answer, in turns where that takes long.

Most pages are joined from what is stored. Those with `$select`, other metadata or Atom are made anew entity by entity,
which for a thousand of them is long enough for others to notice. Does not know how an entity is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tablestone import limits
from tablestone.entity import ContinuationToken
from tablestone.entity_json import key_of, read_raw
from tablestone.operations import EntitiesPage, QueryEntities
from tablestone.turns import Turns
from tablestone.wire.encode import Answer, Form, encode_page


async def answer_page(query: QueryEntities, page: EntitiesPage, form: Form, turns: Turns) -> Answer:
    """The answer of a query."""
    if form.writer.lists_as_stored(query.projection):
        return encode_page(query, page.stored, page.token, form)
    listed = await _listed(query, page.stored, form, turns)
    if len(listed) == len(page.stored):
        return encode_page(query, listed, page.token, form)
    following = key_of(read_raw(page.stored[len(listed)]))
    return encode_page(query, listed, ContinuationToken(*following), form)


async def _listed(
    query: QueryEntities, stored: Sequence[bytes], form: Form, turns: Turns
) -> list[bytes]:
    """The entities as they are written; fewer, if they grow beyond what an answer may have."""
    listed: list[bytes] = []
    size = 0
    async with turns.turn() as turn:
        for entity in stored:
            if turn.is_over:
                await turn.give_way()
            listed.append(form.writer.listed(query.table, entity, query.projection))
            size += len(listed[-1])
            if size >= limits.PAGE_WRITTEN_BYTES_MAX:
                break
    return listed
