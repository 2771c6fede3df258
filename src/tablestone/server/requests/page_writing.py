"""Writes the entities of a page for an answer, in turns if that takes long.

Most pages are joined from stored text. A page with `$select`, another metadata level or Atom is written entity by
entity, which for a thousand entities takes so long that other requests would notice.
"""

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
    if query.counts is not None or form.writer.lists_as_stored(query.projection):
        return page
    listed: list[bytes] = []
    size = 0
    async with turns.turn() as turn:
        for entity in page.stored:
            if size >= limits.PAGE_WRITTEN_BYTES_MAX:
                return EntitiesPage(listed, ContinuationToken(*key_of(read_raw(entity))))
            if turn.is_over:
                await turn.give_way()
            listed.append(form.writer.listed(query.table, entity, query.projection))
            size += len(listed[-1])
    return EntitiesPage(listed, page.token)
