"""The fields of a posted form as texts. Knows forms and their limits; knows no page."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import FormData, UploadFile

FORM_FIELDS_MAX: Final = 8000
"""Fields of a form: an entity of 252 properties has four for each; a selection has one for each entity."""
FORM_PART_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a field: a string of 64 KiB is up to 200 KiB of UTF-8, and more with escapes."""


class PostedForm:
    """The fields of a form, each once or several times."""

    def __init__(self, form: FormData) -> None:
        self._form = form

    def text(self, name: str, default: str = "") -> str:
        """The text of a field, or the default if it is absent."""
        value = self._form.get(name, default)
        return value if isinstance(value, str) else default

    def texts(self, name: str) -> list[str]:
        """The texts of all fields of a name, in their order."""
        return [value for value in self._form.getlist(name) if isinstance(value, str)]

    def file(self, name: str) -> UploadFile | None:
        """A file that was chosen, or None."""
        value = self._form.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None
