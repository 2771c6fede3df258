"""Writes a page of entities as an answer, in turns if that takes long.

Most pages are joined from stored text. A page with `$select`, another metadata level or Atom is written entity by
entity, which for a thousand entities takes so long that other requests would notice.
"""

from collections.abc import Sequence

from tablestone import limits
from tablestone.cooperative_scheduling import Turns
from tablestone.model.entity_json import key_of, read_raw
from tablestone.model.keys import ContinuationToken
from tablestone.model.operations import EntitiesPage, QueryEntities
from tablestone.wire.encode import Form, encode_page
from tablestone.wire.messages import Answer


async def answer_page(query: QueryEntities, page: EntitiesPage, form: Form, turns: Turns) -> Answer:
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
