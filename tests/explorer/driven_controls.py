"""The controls on the explorer's pages, and the test that drives each of them in a browser.

A control is an element of a template that a person can use; `data-control` names it. Test pages report each control
that is clicked, filled in, chosen or submitted, and each test must drive the ones that `DRIVEN_BY` lists for it.
`EXPLORER_CONTROLS=FILE` appends to FILE each control that a test drives.
"""

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

import tablestone.explorer

TEMPLATES: Final = Path(tablestone.explorer.__file__).parent / "templates"
KEPT: Final = "EXPLORER_CONTROLS"
DRIVEN: Final[set[str]] = set()
"""The controls that the current test has driven."""

TELL: Final = """
addEventListener("click", (event) => tell(event, "a, button, summary"), true);
addEventListener("submit", (event) => tell(event, "form"), true);
addEventListener("input", (event) => tell(event, "input, select, textarea"), true);
addEventListener("change", (event) => tell(event, "input, select, textarea"), true);
addEventListener("select", (event) => tell(event, "textarea[readonly]"), true);
function tell(event, kinds) {
  const control = event.target.closest?.(kinds);
  if (control?.dataset.control) driven(control.dataset.control);
}
"""
"""A script for every page: a text that is only there to be copied counts as driven when it is selected."""

_CONTROL: Final = re.compile(r"<(?:a|button|input|select|textarea|summary|form)\b([^>]*)")
_NAME: Final = re.compile(r'\bdata-control="([\w.-]+)"')
_NO_CONTROL: Final = re.compile(r'\btype="hidden"|\shidden\b')


def controls_of(template: str) -> list[str | None]:
    """The names of the controls in a template's text; None for one without a name."""
    found = []
    for control in _CONTROL.finditer(template):
        if not _NO_CONTROL.search(control[1]):
            name = _NAME.search(control[1])
            found.append(name[1] if name else None)
    return found


def watch(context: Any) -> None:
    """Record the controls driven in any page of a Playwright context."""
    context.expose_binding("driven", lambda _source, name: DRIVEN.add(name))
    context.add_init_script(TELL)


def keep(test: str) -> None:
    """Append the test's controls to the file, if one is asked for."""
    if KEPT in os.environ:
        with Path(os.environ[KEPT]).open("a", encoding="utf-8") as file:
            file.writelines(f"{test} {name}\n" for name in sorted(DRIVEN))


def name_of(request: pytest.FixtureRequest) -> str:
    """The test's name as in `DRIVEN_BY`: the file without its first words, and the function."""
    node: Any = request.node
    return f"{node.path.stem.removeprefix('test_explorer_')}.{node.originalname}"


_OF_TESTS: Final = {
    "account.test_a_server_with_several_accounts": "page.accounts page.account tables.account",
    "account.test_a_signature_is_made_and_explained": (
        "signature.form signature.table signature.may signature.start-pk signature.end-pk signature.make "
        "signature.explain-form signature.given signature.explain"
    ),
    "account.test_policies_are_written_and_read": (
        "policies.form policies.id policies.may policies.expiry policies.save head.tab"
    ),
    "account.test_properties_and_cors_rules": (
        "service.form service.origins service.methods service.age service.logged service.log-days service.save"
    ),
    "account.test_the_heat_map_and_its_lists": (
        "heat.form heat.period heat.show heat.go heat.partition heat.why"
    ),
    "account.test_heat_is_refreshed_unless_it_is_paused": "heat.pause",
    "bad_input.test_rows_that_could_not_be_read_are_tried_again": "table.read-again",
    "changes.test_an_old_version_is_found_and_put_back": "entity.history changes.back changes.more",
    "changes.test_a_long_search_goes_on": "changes.further",
    "changes.test_new_changes_appear_unless_the_page_is_paused": (
        "changes.form changes.pk changes.rk changes.kind changes.find changes.all changes.pause"
    ),
    "changes.test_the_tab_leads_to_the_last_changes": "changes.entity",
    "controls.test_a_large_table_is_counted_on": "size.further head.count",
    "controls.test_a_plan_and_its_advice_are_opened": "table.plan table.advice advised.source",
    "controls.test_a_policy_begins": "policies.start",
    "controls.test_a_property_is_removed_and_the_panel_closed": "entity.remove entity.close",
    "controls.test_a_signature_is_copied": "signature-made.url signature-made.copy",
    "controls.test_every_field_of_a_signature": (
        "signature.end signature.ip signature.policy signature.https signature.start-rk signature.end-rk"
    ),
    "controls.test_every_field_of_the_service": (
        "service.enabled service.apis service.days service.allowed service.exposed"
    ),
    "controls.test_every_panel_is_closed": "copied.close done.close export.close import.close",
    "controls.test_keys_of_an_import_are_made_of_columns": "import.partition-key import.row-key done.table",
    "controls.test_the_panel_copies_its_entity": (
        "entity.copy entity.copy-form entity.copy-json entity.copy-filter entity.copy-language"
    ),
    "controls.test_the_panels_of_a_conflict_and_of_a_deletion_are_closed": (
        "conflict.close delete-entities.close"
    ),
    "controls.test_the_stored_entity_is_taken_after_a_conflict": "conflict.take",
    "controls.test_the_token_is_typed": "refused.form refused.token refused.open",
    "controls.test_the_ways_between_the_pages": (
        "page.skip page.brand page.menu page.table tables.table delete-table.cancel problem.tables"
    ),
    "controls.test_the_ways_on_from_an_entity_that_is_gone": "problem.table problem.changes",
    "controls.test_the_ways_to_the_heat_map": "heat.by-table tables.remark",
    "controls.test_a_scan_without_a_result_so_far_can_look_further": "rows.further",
    "pages.test_an_entity_is_edited_under_its_etag": (
        "conflict.form conflict.write entity.form entity.text entity.value entity.save rows.entity"
    ),
    "pages.test_insert_clone_and_delete": (
        "entity.name entity.kind entity.pk entity.rk entity.add entity.clone entity.delete head.insert "
        "entity.empty-keys delete-entity.form delete-entity.delete delete-entity.keep"
    ),
    "pages.test_looks_can_be_changed": "page.theme",
    "pages.test_many_are_copied_and_deleted": (
        "rows.box table.selection table.copy table.copy-json table.copy-filter table.copy-language table.delete "
        "copied.text copied.copy delete-entities.form delete-entities.delete"
    ),
    "pages.test_tables_are_found_counted_created_and_deleted": (
        "page.find-form page.find tables.new tables.create-form tables.name tables.create "
        "tables.count head.more head.delete delete-table.form delete-table.typed delete-table.delete"
    ),
    "pages.test_the_builder_and_saved_queries": (
        "table.build table.build-form table.property table.comparison table.value table.kind table.add "
        "table.saved table.saved-query table.save-form table.save-name table.save table.forget-form table.forget"
    ),
    "pages.test_the_query_bar": (
        "table.query table.filter table.shape table.select table.order table.top table.run table.shape-run"
    ),
    "pages.test_what_is_exported_can_be_imported": (
        "head.export export.form export.kind export.download head.import import.form import.file "
        "import.conflict import.import"
    ),
    "columns.test_columns_are_hidden_and_resized": "table.column",
    "columns.test_the_loaded_rows_are_sorted": "table.sort",
    "entity_panel.test_a_conflict_shows_both_versions": "conflict.equal conflict.long",
    "entity_panel.test_a_long_value_is_folded": "entity.unfold",
    "entity_panel.test_only_what_one_changed_is_written": "conflict.mine",
    "entity_panel.test_an_entity_is_edited_as_json": "entity.view entity.json",
    "first_steps.test_a_file_becomes_a_table": "tables.import import.table import.types",
    "first_steps.test_an_account_without_tables": (
        "tables.first-import tables.sample-form tables.sample tables.sort"
    ),
    "narrow.test_the_tables_are_a_menu": "page.side",
    "property_controls.test_a_control_fits_its_type": "entity.choice",
    "selection.test_a_selection_is_cleared": "table.clear",
    "selection.test_all_rows_and_a_range_are_selected": "table.select-all",
    "upkeep.test_an_index_and_an_expiry_without_the_documents": (
        "upkeep.property upkeep.within upkeep.accepted upkeep.create upkeep.index-form upkeep.drop upkeep.drop-form "
        "upkeep.by-property upkeep.by-age upkeep.name upkeep.age upkeep.unit upkeep.count upkeep.count-form "
        "upkeep.set upkeep.set-form upkeep.suspend upkeep.resume upkeep.remove upkeep.expiry-form "
        "ask.form ask.do ask.cancel"
    ),
    "unsaved.test_a_problem_in_the_panel_is_closed": "problem.close",
    "unsaved.test_what_was_typed_is_not_thrown_away_unasked": "unsaved.keep unsaved.discard",
}
DRIVEN_BY: Final = {name: test for test, names in _OF_TESTS.items() for name in names.split()}
"""The test that drives each control, named as by `name_of`."""
