// The grid: pieces of rows that are loaded near the window and emptied far from it, so that the page never holds more than
// about `LOADED_MAX` pieces, however large the table. The arrow keys move from cell to cell.

const NEAR = "1500px";
const LOADED_MAX = 24;
const LETTER = 7.85; // pixels of a letter in the grid
const isNarrow = matchMedia("(max-width: 45rem)");

export function startGrid(part, announce) {
  const grid = document.getElementById("grid");
  if (!grid) return;
  const names = grid.querySelector(".names .row");
  const cost = document.getElementById("cost");
  const sum = { read: 0, pages: 0, bytes: 0, milliseconds: 0, examined: 0, untold: 0 };
  let sorted = null;
  const near = new IntersectionObserver(seen, { root: grid, rootMargin: `${NEAR} 0px` });

  function seen(changes) {
    for (const { target, isIntersecting } of changes) {
      target.isNear = isIntersecting;
      // While the loaded rows are sorted, no others come between or below them.
      if (sorted) continue;
      // A piece that was read can have no rows. Read only a piece that is new or was emptied.
      if (isIntersecting && (target.dataset.rows === undefined || target.isEmptied)) fill(target);
    }
    const loaded = [...grid.querySelectorAll(".piece")].filter((each) => each.childElementCount > 0);
    for (const piece of loaded) {
      if (loaded.length <= LOADED_MAX) break;
      if (piece.isNear || piece.contains(document.activeElement) || piece.querySelector(":checked")) continue;
      piece.style.height = `${piece.offsetHeight}px`;
      piece.replaceChildren();
      piece.isEmptied = true;
      loaded.pop();
    }
  }

  async function fill(piece, url = piece.dataset.source) {
    if (piece.isLoading) return;
    piece.isLoading = true;
    // Keep the columns in their places: the service may return properties in another order than before.
    const address = new URL(url, location.href);
    address.searchParams.set("columns", columns().join(","));
    const html = await part(address);
    const parsed = new DOMParser().parseFromString(html, "text/html");
    const found = parsed.querySelector(".piece");
    if (!found) {
      const again = document.getElementById("read-again").content.firstElementChild.cloneNode(true);
      again.addEventListener("click", () => fill(piece, url));
      piece.replaceChildren(...parsed.querySelectorAll(".problem"), again);
      piece.style.height = "";
      piece.dataset.rows = "0";
      piece.isEmptied = false;
      announce(piece.textContent);
      piece.isLoading = false;
      return;
    }
    const isNew = piece.isKnown !== true;
    const fresh = document.importNode(found, true);
    near.unobserve(piece);
    piece.replaceWith(fresh);
    arrive(fresh, isNew);
  }

  const heads = () => [...names.querySelectorAll("[data-name]")];
  const columns = () => heads().map((each) => each.dataset.name);

  /** Add the columns and the cost of a piece, and after the last one a place for the next. */
  function arrive(piece, isNew) {
    piece.isKnown = true;
    const there = new Set(columns());
    for (const name of piece.dataset.columns.split(",").filter((each) => each && !there.has(each))) {
      const head = document.getElementById("new-column").content.firstElementChild.cloneNode(true);
      head.dataset.name = name;
      head.querySelector(".sort").textContent = name;
      names.append(head);
    }
    noteKinds(piece);
    layOut();
    if (isNew) {
      for (const name of ["read", "pages", "bytes", "milliseconds"]) sum[name] += Number(piece.dataset[name]);
      // Only Tablestone says how many entities it examined. A sorted result is read once, and its pieces cost nothing.
      sum.examined += Number(piece.dataset.examined);
      sum.untold += Number(piece.dataset.examined === "" && piece.dataset.pages !== "0");
      const next = piece.dataset.following;
      const isEmpty = piece.querySelector(".further") !== null;
      if (next && !isEmpty) {
        const place = document.createElement("div");
        place.className = "piece";
        place.setAttribute("role", "rowgroup");
        place.style.height = "600px";
        place.dataset.source = next;
        piece.after(place);
        near.observe(place);
      }
      showCost();
    }
    near.observe(piece);
    showSelected();
  }

  const NUMBERS = ["Int32", "Int64", "Double"];

  /** Put the types of a column beside its name, and make a new column as wide as its texts. */
  function noteKinds(piece) {
    const rows = [...piece.querySelectorAll(".row")].slice(0, 50).map((each) => [...each.querySelectorAll(".cell")]);
    heads().forEach((head, index) => {
      const cells = rows.map((each) => each[index]).filter((each) => each?.textContent);
      // The first class of a cell with a value is `cell`, the second its type.
      const kinds = new Set(cells.map((each) => each.classList[1]));
      if (head.matches(".pk, .rk") || !cells.length) return;
      const known = new Set((head.dataset.kind ?? "").split(", ").filter(Boolean));
      for (const kind of kinds) known.add(kind);
      head.dataset.kind = [...known].join(", ");
      for (const kind of NUMBERS) head.classList.toggle(kind, known.has(kind));
    });
    heads().forEach((head, index) => {
      if (head.letters || !rows.length) return;
      const long = Math.max(...rows.map((each) => each[index]?.textContent.length ?? 0));
      // A name has wider letters than a value, and the type smaller ones; in a narrow window it is below the name.
      const kind = isNarrow.matches ? 0 : 0.75 * (head.dataset.kind ?? "").length;
      head.letters = Math.max(6, Math.min(34, Math.max(long, 1.15 * head.dataset.name.length + kind + 2)));
      letters[head.dataset.name] = head.letters;
    });
    if (rows.length) sessionStorage.setItem(place, JSON.stringify(letters));
  }

  // Widths and hidden columns are rules of a style sheet, so that they hold for rows that arrive later. They are kept in
  // the browser, for each table.
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const place = `columns ${location.pathname}`;
  const kept = JSON.parse(localStorage.getItem(place) ?? "{}");
  // Without rows, as after a wrong filter, the columns have the widths that they had.
  const letters = JSON.parse(sessionStorage.getItem(place) ?? "{}");
  const ofColumn = (head) => (kept[head.dataset.name] ??= {});

  function layOut() {
    const widths = heads().map((each) => (ofColumn(each).width ? `${ofColumn(each).width}px` : `${Math.round((each.letters ?? letters[each.dataset.name] ?? 16) * LETTER) + 26}px`));
    const rules = heads().map((each, index) => `#grid .row > :nth-child(${index + 2}) { ${ofColumn(each).isHidden ? "display: none" : `width: ${widths[index]}`} }`);
    const pk = heads().findIndex((each) => each.matches(".pk"));
    if (pk >= 0) rules.push(`#grid { --pk: ${ofColumn(heads()[pk]).isHidden ? "0px" : widths[pk]} }`);
    sheet.replaceSync(rules.join("\n"));
    listColumns();
  }

  function keepColumns() {
    localStorage.setItem(place, JSON.stringify(kept));
    layOut();
  }

  /** A box for each column, in the card of the columns. */
  function listColumns() {
    const card = document.getElementById("columns");
    const listed = card.querySelectorAll("label").length;
    for (const head of heads().slice(listed)) {
      const label = document.getElementById("column-choice").content.firstElementChild.cloneNode(true);
      label.querySelector("span").textContent = head.dataset.name;
      label.querySelector("input").setAttribute("aria-label", `Show ${head.dataset.name}`);
      label.querySelector("input").checked = !ofColumn(head).isHidden;
      label.addEventListener("change", (event) => {
        ofColumn(head).isHidden = !event.target.checked;
        keepColumns();
      });
      card.append(label);
    }
  }

  grid.addEventListener("pointerdown", (event) => {
    if (!event.target.matches(".grip")) return;
    event.preventDefault();
    const head = event.target.closest(".cell");
    const start = head.offsetWidth - event.clientX;
    event.target.setPointerCapture(event.pointerId);
    const move = (moved) => {
      ofColumn(head).width = Math.max(48, start + moved.clientX);
      layOut();
    };
    event.target.addEventListener("pointermove", move);
    event.target.addEventListener("lostpointercapture", () => {
      event.target.removeEventListener("pointermove", move);
      keepColumns();
    }, { once: true });
  });

  /** Sort the loaded rows by a column: ascending, then descending, then by key again. */
  function sortBy(head) {
    const way = head.getAttribute("aria-sort");
    const pieces = [...grid.querySelectorAll(".piece")].filter((each) => each.querySelector(".row:not(.further)"));
    const rows = pieces.flatMap((each) => [...each.querySelectorAll(".row:not(.further)")]);
    const counts = pieces.map((each) => each.querySelectorAll(".row:not(.further)").length);
    if (!sorted) rows.forEach((each, index) => (each.place = index));
    for (const each of heads()) each.removeAttribute("aria-sort");
    sorted = way === "descending" ? null : head;
    if (sorted) {
      const index = heads().indexOf(head) + 1;
      const sign = way ? -1 : 1;
      head.setAttribute("aria-sort", way ? "descending" : "ascending");
      const isNumber = NUMBERS.some((each) => head.classList.contains(each));
      const valueOf = (row) => (isNumber ? Number.parseFloat(row.children[index].textContent) : row.children[index].textContent);
      const values = new Map(rows.map((each) => [each, valueOf(each)]));
      const isAbsent = (value) => value === "" || Number.isNaN(value);
      rows.sort((one, other) => {
        const [a, b] = [values.get(one), values.get(other)];
        // Rows without a value are the last ones in both orders.
        if (isAbsent(a) || isAbsent(b)) return isAbsent(a) - isAbsent(b) || one.place - other.place;
        return a < b ? -sign : a > b ? sign : one.place - other.place;
      });
    } else {
      rows.sort((one, other) => one.place - other.place);
    }
    let at = 0;
    pieces.forEach((piece, index) => {
      piece.prepend(...rows.slice(at, at + counts[index]));
      at += counts[index];
    });
    showCost();
    announce(cost.textContent);
    if (!sorted) {
      for (const piece of grid.querySelectorAll(".piece")) {
        near.unobserve(piece);
        near.observe(piece);
      }
    }
  }

  grid.addEventListener("click", (event) => {
    const button = event.target.closest(".names .sort");
    if (button) sortBy(button.closest(".cell"));
  });

  function showCost() {
    const count = (number, noun, one = noun) => `${number.toLocaleString("en")} ${number === 1 ? one : noun}`;
    const rows = [...grid.querySelectorAll(".piece")].reduce((all, each) => all + Number(each.dataset.rows ?? 0), 0);
    const size = sum.bytes < 1 << 20 ? `${(sum.bytes / 1024).toFixed(1)} KiB` : `${(sum.bytes / (1 << 20)).toFixed(1)} MiB`;
    const isMore = [...grid.querySelectorAll(".piece")].at(-1)?.dataset.rows === undefined;
    // Empty until the size of the table is known, and absent for a query that reads only a part of it.
    const total = Number(cost.dataset.total ?? 0);
    const of = isMore && total > rows ? ` of ${total.toLocaleString("en")}` : "";
    // By an index, the server scans a little first.
    const scans = "scans" in cost.dataset && sum.examined > rows ? " (some by a scan before the index)" : "";
    const told = sum.untold || !sum.pages ? "" : `${sum.examined.toLocaleString("en")} examined${scans}, `;
    const received = sum.read === rows ? "" : `${count(sum.read, "entities", "entity")} received in `;
    const how = sorted ? `, sorted by ${sorted.dataset.name}` : isMore && !of ? ", more below" : "";
    const shown = document.createElement("strong");
    shown.textContent = `${rows.toLocaleString("en")}${of}`;
    cost.replaceChildren(shown, ` shown${how} · ${told}${received}${count(sum.pages, "pages", "page")}, ${count(sum.milliseconds, "ms")}`);
    cost.title = `${cost.textContent}; ${size} received`;
  }

  document.addEventListener("counted", showCost);

  grid.addEventListener("click", (event) => {
    const link = event.target.closest(".look-further");
    if (!link) return;
    event.preventDefault();
    const piece = link.closest(".piece");
    piece.isKnown = false;
    fill(piece, link.href);
  });

  /** Entities have changed: read the pieces in the window again, and later pieces when they come near. */
  document.addEventListener("changed", () => {
    if (sorted) {
      sorted.removeAttribute("aria-sort");
      sorted = null;
    }
    const pieces = [...grid.querySelectorAll(".piece")];
    const top = grid.getBoundingClientRect().top;
    const first = Math.max(pieces.findIndex((each) => each.getBoundingClientRect().bottom > top), 0);
    for (const piece of pieces.slice(first + 1)) {
      near.unobserve(piece);
      piece.remove();
    }
    for (const name of Object.keys(sum)) sum[name] = 0;
    document.getElementById("nothing")?.remove();
    if (pieces[first]) {
      pieces[first].isKnown = false;
      fill(pieces[first]);
    }
  });

  // The keyboard: Tab enters the grid at one cell, and the arrow keys move on from it.
  const rowsNow = () => [...grid.querySelectorAll(".piece .row")];
  const cellsOf = (row) => [...row.querySelectorAll("[role=gridcell]")];

  function go(row, index) {
    const cell = cellsOf(row)[Math.max(0, Math.min(index, cellsOf(row).length - 1))];
    if (!cell) return;
    cell.tabIndex = -1;
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 };
  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest(".piece .row");
    const rows = rowsNow();
    const head = event.target.closest(".names .cell");
    if (head) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = heads()[heads().indexOf(head) + step];
      if (to) to.querySelector(".sort").focus();
      if (event.key === "ArrowDown" && rows.length) go(rows[0], heads().indexOf(head) + 1);
      if (to || event.key === "ArrowDown") event.preventDefault();
      return;
    }
    if (!row) {
      if (event.target === grid && (event.key in STEPS || event.key === "Enter") && rows.length) {
        event.preventDefault();
        go(rows.find((each) => each.getBoundingClientRect().top > names.getBoundingClientRect().bottom - 2) ?? rows[0], 1);
      }
      return;
    }
    const index = cellsOf(row).indexOf(event.target.closest("[role=gridcell]"));
    if (event.key in STEPS) {
      event.preventDefault();
      if (event.key === "ArrowUp" && row === rows[0] && index > 0) {
        heads()[index - 1].querySelector(".sort").focus();
        return;
      }
      const at = Math.max(0, Math.min(rows.indexOf(row) + STEPS[event.key], rows.length - 1));
      go(rows[at], index);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      go(row, index + (event.key === "ArrowRight" ? 1 : -1));
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      go(row, event.key === "Home" ? 0 : cellsOf(row).length - 1);
    } else if (event.key === "Enter" && event.target.tagName !== "A") {
      event.preventDefault();
      row.querySelector("a")?.click();
    } else if (event.key === " " && event.target.tagName !== "INPUT") {
      event.preventDefault();
      const box = row.querySelector("input");
      if (!box) return;
      isRange = event.shiftKey;
      box.click();
    }
  });

  grid.addEventListener("scroll", () => grid.classList.toggle("aside", grid.scrollLeft > 0), { passive: true });

  const selected = document.getElementById("selected");
  const all = document.getElementById("select-all");
  const boxes = () => [...grid.querySelectorAll("input[name=row]")];
  let last = null;
  let isRange = false;

  function showSelected() {
    const count = boxes().filter((each) => each.checked).length;
    selected.textContent = `${count.toLocaleString("en")} selected`;
    document.querySelector(".selection").hidden = count === 0;
    all.checked = count > 0 && count === boxes().length;
    all.indeterminate = count > 0 && !all.checked;
  }

  function choose(box, isChosen) {
    box.checked = isChosen;
    const row = box.closest(".row");
    row.classList.toggle("chosen", isChosen);
    row.setAttribute("aria-selected", String(isChosen));
  }

  grid.addEventListener("click", (event) => {
    if (event.target.name === "row" && event.isTrusted) isRange = event.shiftKey;
  });

  // A click anywhere in a row opens its entity, and one beside its box is for the box. Not at the end of a drag over text.
  grid.addEventListener("click", (event) => {
    const row = event.target.closest(".piece .row");
    if (!row || event.target.closest("input, a") || !getSelection().isCollapsed) return;
    const box = event.target.closest(".box")?.querySelector("input");
    if (box) isRange = event.shiftKey;
    (box ?? row.querySelector("a"))?.click();
  });

  document.getElementById("clear-selection").addEventListener("click", () => {
    for (const each of boxes()) choose(each, false);
    showSelected();
    announce(selected.textContent);
    grid.focus();
  });

  // With Shift, select the rows from the last selected one to this one.
  grid.addEventListener("change", (event) => {
    const box = event.target;
    if (box === all) {
      for (const each of boxes()) choose(each, all.checked);
    } else if (box.name === "row") {
      const here = boxes();
      const [from, to] = [here.indexOf(last), here.indexOf(box)].sort((one, other) => one - other);
      const range = isRange && from >= 0 ? here.slice(from, to + 1) : [box];
      for (const each of range) choose(each, box.checked);
      last = box;
      isRange = false;
    }
    showSelected();
    announce(selected.textContent);
  });

  for (const piece of grid.querySelectorAll(".piece")) arrive(piece, true);
}
