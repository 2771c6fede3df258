// Asks before unsaved edits of an entity are lost: with a dialog of the page or, if the whole page would go, with the
// browser's own.

const asking = document.getElementById("unsaved");
let shown = null;

const formOf = () => document.querySelector("#entity-form, #conflict-form");
const textOf = (form) => new URLSearchParams(new FormData(form)).toString();

/** Note the form of the panel or the page. `isTyped`: its values were sent and refused. */
export function noteShown(isTyped) {
  const form = formOf();
  shown = form && !isTyped ? textOf(form) : null;
}

/** Whether the form has values that are not stored. */
export function isUnsaved() {
  const form = formOf();
  return Boolean(form && textOf(form) !== shown);
}

noteShown("typed" in (formOf()?.dataset ?? {}));

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
