// Asks before what was typed and not saved is lost, in an entity or in another guarded form: with a dialog of the page
// or, if the whole page would go, with the browser's own.

const asking = document.getElementById("unsaved");
let shown = null;

const formsOf = () => [...document.querySelectorAll("#entity-form, #conflict-form, [data-guarded]")];
// With disabled fields, which FormData omits: what is typed elsewhere disables fields and enables them again.
const textOf = (forms) => JSON.stringify(forms.flatMap((form) => [...form.elements].filter((each) => each.name))
  .map((each) => [each.name, each.value, each.checked]));

/** Note the form of the panel, or those of the page. `isTyped`: values were sent and refused. */
export function noteShown(isTyped) {
  shown = isTyped ? null : textOf(formsOf());
}

/** Whether a form has values that are not stored. */
export function isUnsaved() {
  const forms = formsOf();
  return forms.length > 0 && textOf(forms) !== shown;
}

noteShown(formsOf().some((form) => "typed" in form.dataset));

/** Whether the form may go; asks the person if something was typed. */
export function mayGo() {
  if (!isUnsaved()) return Promise.resolve(true);
  if (asking.open) return Promise.resolve(false);
  asking.returnValue = "";
  asking.showModal();
  return new Promise((answer) => {
    asking.addEventListener("close", () => answer(asking.returnValue === "discard"), { once: true });
  });
}

asking?.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) asking.close(button.value);
});

addEventListener("beforeunload", (event) => {
  if (isUnsaved()) event.preventDefault();
});
