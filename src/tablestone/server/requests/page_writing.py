"""Writes the entities of a page for an answer, in turns if that takes long.

Most pages are joined from stored text. A page with `$select`, another metadata level or Atom is written entity by
entity, which for a thousand entities takes so long that other requests would notice.
"""

from collections.abc import Sequence

from tablestone import limits
from tablestone.cooperative_scheduling import Turns
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.keys import ContinuationToken
from tablestone.model.operations import EntitiesPage, QueryEntities
from tablestone.wire.encode import Form


async def written_page(
    query: QueryEntities, page: EntitiesPage, form: Form, turns: Turns
) -> EntitiesPage:
    """The page with its entities as they are written; it ends before the one that the answer has no room for."""
    if form.writer.lists_as_stored(query.projection):
        return page
    listed = await _listed(query, page.stored, form, turns)
    token = page.token
    if len(listed) < len(page.stored):
        token = ContinuationToken(*key_of(read_raw(page.stored[len(listed)])))
    return EntitiesPage(listed, token)


async def _listed(
    query: QueryEntities, stored: Sequence[bytes], form: Form, turns: Turns
) -> list[bytes]:
    """The entities as they are written; fewer than given if the answer reaches its size limit."""
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
