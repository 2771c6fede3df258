"""Hostile XML: small documents that expand, and documents of the largest size with many or deep elements."""

_BODY = 4 * 1024 * 1024 - 1024


def nested(depth: int) -> bytes:
    """Elements nested inside each other."""
    return b"<a>" * depth + b"</a>" * depth


def _doubling(levels: int) -> bytes:
    """Each entity is the one before ten times: the last would be 10^levels characters long."""
    names = [b'<!ENTITY e0 "x">']
    names += [
        b'<!ENTITY e%d "%s">' % (level, b"&e%d;" % (level - 1) * 10) for level in range(1, levels)
    ]
    return b"<!DOCTYPE a [" + b"".join(names) + b"]><a>&e%d;</a>" % (levels - 1)


HOSTILE = {
    "entities of entities": _doubling(20),
    "one long entity, often": b'<!DOCTYPE a [<!ENTITY e "%s">]><a>%s</a>'
    % (b"x" * (_BODY // 2), b"&e;" * (_BODY // 8)),
    "deep": b"<a>" * (_BODY // 3),
    "deep and closed": nested(_BODY // 7),
    "many elements": b"<a>" + b"<b/>" * (_BODY // 4) + b"</a>",
    "many attributes": b"<a " + b" ".join(b"b%d=''" % n for n in range(_BODY // 12)) + b"/>",
    "many namespaces": b"<a " + b" ".join(b"xmlns:b%d='c'" % n for n in range(_BODY // 20)) + b"/>",
    "a long namespace, often": b"<a xmlns:q='%s'>%s</a>"
    % ("\u0416".encode() * 27_000, b"<q:a/>" * 4000),
    "a long namespace of names that differ": b"<a xmlns='%s'>%s</a>"
    % (b"x" * 60_000, b"".join(b"<b%d/>" % n for n in range(4000))),
    "a long namespace of attributes": b"<a xmlns:q='%s' %s/>"
    % (b"x" * 30_000, b" ".join(b"q:b%d=''" % n for n in range(3000))),
    "a long namespace, unused": b"<a xmlns:q='%s'/>" % (b"x" * 60_000),
    "a long name": b"<" + b"a" * _BODY + b"/>",
    "an attribute without an end": b"<a b='" + b"x" * _BODY,
    "a comment without an end": b"<a><!--" + b"x" * _BODY,
}
