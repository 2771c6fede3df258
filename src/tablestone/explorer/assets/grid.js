// The grid: pieces of rows that are loaded near the window and emptied far from it, so that a table of any size is a few
// thousand elements at most. The arrow keys move from cell to cell.

const NEAR = "1500px";
const LOADED_MAX = 24;

export function startGrid(part, announce) {
  const grid = document.getElementById("grid");
  if (!grid) return;
  const names = grid.querySelector(".names .row");
  const cost = document.getElementById("cost");
  const sum = { read: 0, pages: 0, bytes: 0, milliseconds: 0 };
  const near = new IntersectionObserver(seen, { root: grid, rootMargin: `${NEAR} 0px` });

  function seen(changes) {
    for (const { target, isIntersecting } of changes) {
      target.isNear = isIntersecting;
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

  const columns = () => [...names.querySelectorAll("[data-name]")].map((each) => each.dataset.name);

  /** Add the columns and the cost of a piece, and after the last one a place for the next. */
  function arrive(piece, isNew) {
    piece.isKnown = true;
    const there = new Set(columns());
    for (const name of piece.dataset.columns.split(",").filter((each) => each && !there.has(each))) {
      const cell = document.createElement("span");
      cell.setAttribute("role", "columnheader");
      cell.className = "cell";
      cell.dataset.name = name;
      cell.textContent = name;
      names.append(cell);
    }
    alignNumbers(piece);
    if (isNew) {
      for (const name of ["read", "pages", "bytes", "milliseconds"]) sum[name] += Number(piece.dataset[name]);
      showCost();
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
    }
    near.observe(piece);
    showSelected();
  }

  const NUMBERS = ["Int32", "Int64", "Double"];

  /** Align the name of a column of numbers to the right, like the numbers. */
  function alignNumbers(piece) {
    const heads = [...names.querySelectorAll("[data-name]")];
    for (const row of [...piece.querySelectorAll(".row")].slice(0, 20)) {
      const cells = row.querySelectorAll(".cell");
      heads.forEach((head, index) => {
        const kind = NUMBERS.find((each) => cells[index]?.classList.contains(each));
        if (kind) head.classList.add(kind);
      });
    }
  }

  function showCost() {
    const count = (number, noun, one = noun) => `${number.toLocaleString("en")} ${number === 1 ? one : noun}`;
    const rows = [...grid.querySelectorAll(".piece")].reduce((all, each) => all + Number(each.dataset.rows ?? 0), 0);
    const size = sum.bytes < 1 << 20 ? `${(sum.bytes / 1024).toFixed(1)} KiB` : `${(sum.bytes / (1 << 20)).toFixed(1)} MiB`;
    cost.textContent = `${count(rows, "shown")}, ${count(sum.read, "entities received", "entity received")} in ${count(sum.pages, "pages", "page")}, ${size}, ${count(sum.milliseconds, "ms")}`;
  }

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
    for (const button of document.querySelectorAll("#selection button")) button.disabled = count === 0;
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
    if (!event.target.closest(".piece a[data-into]")) return;
    grid.querySelector(".row.open")?.classList.remove("open");
    event.target.closest(".row").classList.add("open");
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
