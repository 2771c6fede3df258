// The explorer's script loads parts of pages and handles forms, keys and the mouse. All values come from the server as
// escaped HTML, or are set as text. Nothing is evaluated, and no other host is asked for anything.

import { startGrid } from "./grid.js";
import { startCompletion } from "./completion.js";
import { isUnsaved, mayGo, noteShown } from "./typed_values.js";

const announced = document.getElementById("announced");
const panel = document.getElementById("panel");

// A form that comes back has the address of its page: a reload, and the browser's Back, send nothing again.
if (document.querySelector("[data-posted]") && document.referrer) history.replaceState(null, "", document.referrer);

export function announce(text) {
  announced.textContent = text;
}

/** The HTML of a part of a page; a sentence in a paragraph if the explorer does not answer. */
async function part(url) {
  return (await send(url)).html;
}

/** Send a request: the HTML of the answer, and whether the request succeeded. */
async function send(url, options = {}, headers = { "X-Part": "1" }) {
  try {
    const answer = await fetch(url, { ...options, headers, credentials: "same-origin" });
    const html = await answer.text();
    if (answer.redirected && answer.ok) location.assign(answer.url);
    if (answer.headers.get("X-Changed")) document.dispatchEvent(new Event("changed"));
    return { html, isDone: answer.ok };
  } catch {
    return { html: '<p class="problem" role="alert">The explorer does not answer: has it been stopped?</p>', isDone: false };
  }
}

/** Put each sentence about a field beside it, or leave it where it is. `asked` is the form that an answer is for. */
function putBeside(place, asked = null) {
  for (const said of place.querySelectorAll("[data-field]")) {
    const [name, number] = said.dataset.field.split(":");
    const fields = (said.closest("form") ?? asked)?.querySelectorAll(`[name="${name}"]:not([type=hidden])`);
    const field = fields?.[number ?? 0];
    if (!field) continue;
    said.id ||= "wrong-field";
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", said.id);
    (field.closest(".field") ?? field.closest("label") ?? field).after(said);
    field.focus();
  }
}

/** Show a part in its place. `isTyped`: it answers a form whose values are not stored; `asked`: that form. */
function show(place, html, isTyped = false, asked = null) {
  const form = place.querySelector("form");
  place.innerHTML = html;
  keepFile(form, place.querySelector("form"));
  if (isTyped && form && !place.querySelector("form")) place.append(form);
  if (place.id === "panel") {
    place.classList.toggle("open", html.trim() !== "");
    if (!history.state?.isPanel) history.pushState({ isPanel: true }, "");
    noteShown(isTyped);
  }
  for (const each of place.querySelectorAll("[data-step]")) each.hidden = !rowBeside(0);
  // The field that is wrong, though a sentence about it comes before it.
  const wrong = place.querySelector(".property.wrong .value, [data-line]");
  const first = wrong ?? place.querySelector(steps || "[role=alert], h2, textarea, a, button");
  steps = "";
  if (place.id === "panel" && first) {
    if (!first.matches("input, select, textarea, a, button")) first.tabIndex = -1;
    first.focus({ preventScroll: false });
    if (wrong) wrong.scrollIntoView({ block: "center" });
    if (wrong?.dataset.line) selectLine(wrong);
  }
  if (place.hasAttribute("tabindex") && place.id !== "panel") place.scrollIntoView({ block: "nearest" });
  const counted = place.querySelector("[data-counted]");
  if (counted) noteCount(counted);
  const said = place.querySelector("[role=alert], [role=status]") ?? place.querySelector("h2");
  if (asked) putBeside(place, asked);
  announce(said ? said.textContent : place.textContent.slice(0, 200));
}

/** Select the line of a text at which there is an error. */
function selectLine(text) {
  const lines = text.value.split("\n");
  const line = Math.min(text.dataset.line, lines.length) - 1;
  const start = lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0);
  text.setSelectionRange(start, start + lines[line].length);
  text.scrollTop = (line * text.scrollHeight) / lines.length - text.clientHeight / 2;
}

/** The button that went to the entity before or after, which keeps the focus; else empty. */
let steps = "";

/** The loaded row that is so many rows after that of the entity in the panel. */
function rowBeside(step) {
  const rows = [...document.querySelectorAll("#grid .piece .row:not(.further)")];
  const shown = panel?.querySelector("#entity-copy [name=row]")?.value;
  const open = rows.findIndex((each) => each.querySelector("[name=row]").value === shown);
  return open < 0 ? null : rows[open + step];
}

/** Keep the file of a form that was refused: a server cannot put a file into a form. */
function keepFile(before, after) {
  const [old, field] = [before, after].map((form) => form?.querySelector("input[type=file]"));
  if (!field || !old?.files.length || before.action !== after.action) return;
  field.files = old.files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
}

/** Put the count of a table into its row; a complete count also beside its name and into the grid's cost. */
function noteCount(counted) {
  const { entities, bytes, size } = counted.dataset;
  const cost = document.getElementById("cost");
  const row = counted.closest(".tables tr");
  if (row) {
    counted.closest("td").dataset.value = entities;
    const cell = row.querySelector(".bytes");
    cell.dataset.value = bytes;
    cell.textContent = size;
    for (const each of document.querySelectorAll(".tables .bytes")) each.hidden = false;
  }
  if (counted.nextElementSibling) return;
  const number = document.createElement("span");
  number.textContent = Number(entities).toLocaleString("en");
  document.querySelector(`nav.list [data-table="${counted.dataset.counted}"]`)?.append(number);
  if (cost && "total" in cost.dataset) {
    cost.dataset.total = entities;
    document.dispatchEvent(new Event("counted"));
  }
}

function placeOf(element) {
  const name = element.dataset.into;
  return name === "parent" ? element.parentElement : document.querySelector(name);
}

let opener = null;

document.addEventListener("click", async (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = target.closest("a[data-into]");
  if (link) {
    event.preventDefault();
    const place = placeOf(link);
    if ("discards" in link.dataset) noteShown();
    else if (place?.id === "panel" && !(await mayGo())) return;
    opener = link;
    if (link.matches("#grid a")) {
      document.querySelector("#grid .row.open")?.classList.remove("open");
      link.closest(".row").classList.add("open");
    }
    if (place) show(place, await part(link.href));
    else location.assign(link.href);
  } else if (target.closest(".close")) {
    // A panel that is a page of its own leads back to its table, or else to the tables.
    if (panel) closePanel();
    else location.assign((document.querySelector(".tabs a") ?? document.querySelector(".brand")).href);
  } else if (target.closest("[data-step]")) {
    const { step } = target.closest("[data-step]").dataset;
    const row = rowBeside(Number(step));
    steps = `[data-step="${step}"]`;
    row?.scrollIntoView({ block: "nearest" });
    if (row) row.querySelector("a").click();
    else announce(step < 0 ? "This is the first entity" : "This is the last entity that is loaded");
  } else if (target.closest(".unfold")) {
    const isOpen = target.parentElement.querySelector(".long").classList.toggle("unfolded");
    target.setAttribute("aria-expanded", String(isOpen));
  } else if (target.closest(".remove")) {
    target.closest(".property").remove();
  } else if (target.closest("#add-property")) {
    const template = document.getElementById("new-property");
    template.before(template.content.cloneNode(true));
    template.previousElementSibling.querySelector("input").focus();
  } else if (target.closest(".copy")) {
    const text = target.closest(".copy").closest("#panel, #copied, main").querySelector("[data-copy]");
    text.select();
    try {
      await navigator.clipboard.writeText(text.value);
      announce("Copied");
      target.closest(".copy").textContent = "Copied";
    } catch {
      announce("Selected: copy it with Ctrl+C");
    }
  }
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  // A panel opened as a page has no place for a part: the browser sends the form.
  const place = form.dataset.into ? placeOf(form) : null;
  const button = event.submitter;
  // What was typed goes along with its form, and what is in other guarded forms is kept below.
  const isKept = form.closest("main") && document.querySelector("[data-guarded]");
  if (!place && (form.matches("#entity-form, #conflict-form") || isKept)) noteShown();
  if (!place) return;
  event.preventDefault();
  if (place.id === "panel" && !place.contains(form) && !(await mayGo())) return;
  button?.closest(".drop.up")?.removeAttribute("open");
  const url = button?.getAttribute("formaction") || form.getAttribute("action");
  const given = new FormData(form, button);
  const isFile = form.enctype === "multipart/form-data";
  form.setAttribute("aria-busy", "true");
  const wasUnsaved = place.id === "panel" && isUnsaved();
  const { html, isDone } = await send(url, { method: "POST", body: isFile ? given : new URLSearchParams(given) });
  form.removeAttribute("aria-busy");
  for (const each of form.querySelectorAll("[data-field]")) each.remove();
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  show(place, html, wasUnsaved && (!isDone || button?.name === "view"), form);
});

// The browser goes back later; another panel may be open by then, and stays.
let isGoingBack = false;

async function closePanel() {
  if (!panel?.classList.contains("open") || !(await mayGo())) return;
  panel.classList.remove("open");
  panel.replaceChildren();
  if (history.state?.isPanel && !isGoingBack) {
    isGoingBack = true;
    history.back();
  }
  (opener?.isConnected ? opener.closest("[role=gridcell]") ?? opener : document.getElementById("grid"))?.focus();
}

// Back closes an open panel, and the page stays. A reload has none.
if (history.state?.isPanel) history.replaceState(null, "");
addEventListener("popstate", async () => {
  if (isGoingBack) isGoingBack = false;
  else await closePanel();
  if (panel?.classList.contains("open")) history.pushState({ isPanel: true }, "");
});

document.addEventListener("keydown", (event) => {
  const card = event.key === "Escape" ? event.target.closest(".drop[open]") : null;
  if (card) {
    card.open = false;
    card.querySelector("summary").focus();
  } else if (event.key === "Escape" && !event.defaultPrevented && !event.target.closest("dialog")) {
    // Otherwise the same key would also close the dialog that it opens.
    event.preventDefault();
    closePanel();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const wanted = { "/": "find", f: "filter" }[event.key];
  if (wanted && document.getElementById(wanted)) {
    event.preventDefault();
    side.classList.toggle("open", wanted === "find");
    document.getElementById(wanted).focus();
  }
});

const side = document.getElementById("side");
document.getElementById("side-toggle")?.addEventListener("click", (event) => {
  event.target.setAttribute("aria-expanded", String(side.classList.toggle("open")));
});

// Find as one types: in the list beside the page, and in the table of the tables. Enter asks the endpoint.
document.getElementById("find")?.addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const each of document.querySelectorAll("[data-table]")) each.hidden = !each.dataset.table.includes(wanted);
});

// A card takes the focus when it opens, if nobody has moved on by then; it closes with a click beside it, and with Escape.
document.addEventListener("toggle", (event) => {
  if (!event.target.matches(".drop[open]") || document.activeElement !== event.target.querySelector("summary")) return;
  const card = event.target.querySelector(".card");
  const first = card.querySelector("input:not([type=hidden]), select, textarea, button, a");
  if (!first) card.tabIndex = -1;
  (first ?? card).focus();
}, true);

document.addEventListener("click", (event) => {
  for (const each of document.querySelectorAll(".drop[open]")) if (!each.contains(event.target)) each.open = false;
});

// Sort a list by one of its columns: texts ascending first, numbers descending.
document.addEventListener("click", (event) => {
  const head = event.target.closest(".tables thead th");
  if (!head) return;
  const index = [...head.parentElement.children].indexOf(head);
  const isNumber = head.matches(".number");
  const way = head.getAttribute("aria-sort") ?? (isNumber ? "ascending" : "descending");
  for (const each of head.parentElement.children) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", way === "ascending" ? "descending" : "ascending");
  const sign = way === "ascending" ? -1 : 1;
  const body = head.closest("table").tBodies[0];
  const valueOf = (row) => (isNumber ? Number(row.cells[index].dataset.value || -1) : row.cells[index].textContent.trim().toLowerCase());
  const rows = [...body.rows].sort((one, other) => (valueOf(one) < valueOf(other) ? -sign : valueOf(one) > valueOf(other) ? sign : 0));
  body.append(...rows);
});

// When the type of a property changes, the control for the new type takes over the text.
document.addEventListener("change", (event) => {
  const { target } = event;
  if (!target.matches(".property [name=kind]")) return;
  target.title = target.value;
  const before = target.parentElement.querySelector(".value");
  const template = [...target.form.querySelectorAll("template[data-kind]")].find((each) => each.dataset.kind === target.value);
  const control = template.content.firstElementChild.cloneNode(true);
  control.setAttribute("aria-label", before.getAttribute("aria-label"));
  control.value = before.value;
  before.replaceWith(control);
});

/**
 * Disable what does not apply: `data-needs` names a field that must have a value, or with `!` none; `data-unless` what
 * the policy of the form may not have.
 */
function fitForms() {
  for (const part of document.querySelectorAll("[data-needs]")) {
    const name = part.dataset.needs;
    const field = part.closest("form").elements[name.replace("!", "")];
    const has = field.type === "checkbox" ? field.checked : field.value.trim() !== "";
    for (const each of part.matches("fieldset") ? [part] : part.querySelectorAll("input, select")) each.disabled = has === name.startsWith("!");
  }
  for (const part of document.querySelectorAll("[data-unless]")) {
    const has = Boolean(part.closest("form").elements.policy.selectedOptions[0]?.dataset[part.dataset.unless]);
    for (const each of part.querySelectorAll("input")) {
      if (has && each.type === "checkbox") each.checked = false;
      else if (has) each.value = "";
      else if (each.type !== "checkbox" && each.disabled) each.value = each.defaultValue;
      each.disabled = has || (each.disabled && each.closest("[data-needs]") !== null);
    }
  }
}

document.addEventListener("input", fitForms);
fitForms();

// What is typed for one of several options selects it.
document.addEventListener("input", ({ target }) => {
  const option = target.matches("[type=radio]") ? null : target.closest(".field")?.querySelector("[type=radio]");
  if (option) option.checked = true;
});

// Another table has other policies.
document.addEventListener("change", async (event) => {
  const { target } = event;
  if (!target.matches("[data-policies]")) return;
  const url = `${target.dataset.policies}?${new URLSearchParams({ table: target.value })}`;
  const fresh = new DOMParser().parseFromString(await part(url), "text/html").querySelector("[name=policy]");
  const policy = target.form.elements.policy;
  if (fresh) policy.replaceChildren(...fresh.children);
  policy.selectedIndex = 0; // each option that is moved out of a list leaves the next one selected
  fitForms();
});

// Entities have changed: the list of the tables is read again. The grid of a table reads itself.
document.addEventListener("changed", async () => {
  if (document.getElementById("grid")) return;
  const fresh = new DOMParser().parseFromString((await send(location.href, {}, {})).html, "text/html");
  for (const each of ["main .meta", ".sheet", "nav.list"]) {
    const [old, now] = [document, fresh].map((page) => page.querySelector(each));
    if (old && now) old.replaceWith(now);
  }
});

const LOOKED_AT_BYTES = 1 << 20;
let looked = 0;

// Show the first rows of a file that is about to be imported. Of a text, the beginning is enough for that.
document.addEventListener("change", async (event) => {
  const form = event.target.closest("[data-look]");
  const file = form?.elements.file.files[0];
  if (!file) return;
  const given = new FormData(form);
  given.set("look", "1");
  if (/\.(csv|jsonl)$/.test(file.name)) given.set("file", file.slice(0, LOOKED_AT_BYTES), file.name);
  const mine = ++looked;
  const { html } = await send(form.getAttribute("action"), { method: "POST", body: given });
  // An earlier answer may come later.
  if (mine === looked && form.isConnected) document.querySelector(form.dataset.look).innerHTML = html;
});

// In the builder of a filter, a known property selects its type.
document.querySelector("[data-control='table.property']")?.addEventListener("input", (event) => {
  const kind = [...event.target.list.options].find((each) => each.value === event.target.value)?.dataset.kind;
  if (kind) event.target.form.elements.kind.value = kind;
});

putBeside(document);

// What is typed in the other forms of a page is there again when one of them was sent and the page comes back.
const TYPED = "typed";
const isBox = (field) => field.matches("[type=checkbox], [type=radio]");
const isChanged = (field) => {
  if (isBox(field)) return field.checked !== field.defaultChecked;
  if (!field.options) return field.value !== field.defaultValue;
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((each) => each.defaultSelected));
};
const fieldsOf = (control) => document.querySelectorAll(`main [data-control="${control}"]`);

document.addEventListener("submit", (event) => {
  const form = event.target;
  // A form beside the page leads away from it, and Back shows what is stored by then.
  if (event.defaultPrevented || !form.closest("main")) return;
  // A condition is added to the filter as it is typed now.
  if (form.matches(".tools")) form.elements.filter.value = document.getElementById("filter").value;
  const typed = [...document.querySelectorAll("main :is(input, select, textarea)[data-control]")]
    .filter((each) => each.form && each.form !== form && !each.form.dataset.into && each.type !== "file" && isChanged(each))
    .filter((each) => each.id !== "filter" || !form.matches(".tools"))
    .map((each) => [each.dataset.control, [...fieldsOf(each.dataset.control)].indexOf(each), each.value, each.checked]);
  if (typed.length) sessionStorage.setItem(TYPED, JSON.stringify({ title: document.title, typed }));
});

const { title, typed } = JSON.parse(sessionStorage.getItem(TYPED) ?? "{}");
if (title === document.title) {
  for (const [control, index, value, checked] of typed) {
    const field = fieldsOf(control)[index];
    if (field) Object.assign(field, isBox(field) ? { checked } : { value });
  }
  sessionStorage.removeItem(TYPED);
  fitForms();
}

const ADDRESS_MAX = 60000;

/** The query is part of the address, whose length servers limit: a longer one is not sent. */
document.getElementById("query")?.addEventListener("submit", (event) => {
  const length = new URLSearchParams(new FormData(event.target)).toString().length;
  document.getElementById("too-long")?.remove();
  if (length <= ADDRESS_MAX) return;
  event.preventDefault();
  const problem = document.createElement("p");
  problem.id = "too-long";
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = `The query makes an address of ${length.toLocaleString("en")} bytes, and servers accept up to 64 KiB: shorten the filter.`;
  event.target.after(problem);
});

const looks = document.documentElement.classList;
const kept = localStorage.getItem("looks");
if (kept === "light" || kept === "dark") looks.add(kept);
document.getElementById("theme")?.addEventListener("click", () => {
  const isDark = looks.contains("dark") || (!looks.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  looks.remove("light", "dark");
  looks.add(isDark ? "light" : "dark");
  localStorage.setItem("looks", isDark ? "light" : "dark");
});

// A map that is wider than the window begins at its newest end.
const mapOf = (place) => place.querySelector(".scrolls:has(> .heat)");
if (mapOf(document)) mapOf(document).scrollLeft = mapOf(document).scrollWidth;

// A part of a page that is read again every few seconds, unless it is paused or out of sight.
for (const live of document.querySelectorAll("[data-refresh]")) {
  setInterval(async () => {
    if (document.hidden || isPaused(live) || !getSelection().isCollapsed) return;
    const { html, isDone } = await send(live.dataset.from ?? location.href);
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById(live.id);
    if (!isDone || !fresh || isPaused(live) || fresh.innerHTML === live.innerHTML) return;
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const places = [...live.querySelectorAll(".scrolls")].map((each) => [each.getAttribute("aria-label"), each.scrollLeft]);
    live.replaceChildren(...fresh.childNodes);
    const same = (name, value) => [...live.querySelectorAll(`[${name}]`)].find((each) => each.getAttribute(name) === value);
    for (const [name, left] of places) if (same("aria-label", name)) same("aria-label", name).scrollLeft = left;
    const name = ["href", "aria-label"].find((each) => focused?.hasAttribute(each));
    if (name) same(name, focused.getAttribute(name))?.focus({ preventScroll: true });
  }, 1000 * live.dataset.refresh);
}

const rest = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Put the changes that are still to come above the others. The explorer answers when there is one, or after a while. */
async function follow() {
  for (;;) {
    const feed = document.querySelector("[data-follow]");
    if (!feed) return;
    if (document.hidden || isPaused(feed)) {
      await rest(500);
      continue;
    }
    const began = Date.now();
    const list = feed.querySelector("tbody");
    const url = new URL(feed.dataset.follow, location.href);
    url.searchParams.set("since", list.dataset.cursor);
    url.searchParams.set("from", list.lastElementChild?.querySelector("time").dateTime ?? "");
    const { html, isDone } = await send(url);
    // After a pause the same changes come again; a page that was read again has them.
    if (isPaused(feed) || !feed.isConnected) continue;
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const found = isDone ? fresh.querySelector("tbody") : null;
    const state = feed.querySelector(".following");
    state.textContent = found ? "" : fresh.body.textContent.trim();
    if (found) {
      list.dataset.cursor = found.dataset.cursor;
      const rows = [...found.rows];
      list.prepend(...rows);
      while (list.rows.length > FOLLOWED_MAX) list.lastElementChild.remove();
      if (rows.length) state.textContent = `${rows.length} new`;
      if (rows.length || Date.now() - began > 1000) continue;
    }
    await rest(5000);
  }
}

const FOLLOWED_MAX = 500;
follow();

function isPaused(place) {
  return document.querySelector(`[data-pauses="#${place.id}"]`)?.getAttribute("aria-pressed") === "true";
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-pauses]");
  if (!button) return;
  const isOn = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(isOn));
  announce(isOn ? "Paused" : "Goes on");
});

startGrid(part, announce);
startCompletion();
