// Completion of the filter: the server proposes properties, operators and values of the right type.

const PAUSE_MILLISECONDS = 120;

export function startCompletion() {
  const input = document.getElementById("filter");
  const list = document.getElementById("completions");
  if (!input) return;
  let found = [];
  let chosen = -1;
  let waiting = 0;
  let asked = 0;

  async function ask() {
    const mine = ++asked;
    const url = `${input.dataset.complete}?${new URLSearchParams({ text: input.value, caret: input.selectionStart })}`;
    try {
      const answer = await fetch(url, { credentials: "same-origin" });
      if (!answer.ok || mine !== asked || document.activeElement !== input) return;
      found = await answer.json();
    } catch {
      found = [];
    }
    show();
  }

  function show() {
    chosen = -1;
    list.replaceChildren(
      ...found.map((each, index) => {
        const item = document.createElement("li");
        item.id = `completion-${index}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        const text = document.createElement("code");
        text.textContent = each.text;
        const what = document.createElement("span");
        what.className = "quiet";
        what.textContent = each.what;
        item.append(text, what);
        item.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(index);
        });
        return item;
      }),
    );
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
  }

  /** Whether the caret follows part of a name. The query is then incomplete, so Enter takes the first suggestion. */
  function isPartOfName() {
    return /^[A-Za-z_]\w*$/.test(input.value.slice(found[0].start, input.selectionStart));
  }

  function hide() {
    asked++;
    found = [];
    show();
  }

  function choose(index) {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = (index + found.length) % found.length;
    list.children[chosen].setAttribute("aria-selected", "true");
    input.setAttribute("aria-activedescendant", `completion-${chosen}`);
  }

  function take(index) {
    const { text, start } = found[index];
    const after = input.value.slice(input.selectionStart);
    const before = `${input.value.slice(0, start)}${text}${after.startsWith(" ") ? "" : " "}`;
    input.value = before + after;
    input.setSelectionRange(before.length, before.length);
    ask();
  }

  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, PAUSE_MILLISECONDS);
  });
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && list.hidden) {
      event.preventDefault();
      ask();
    } else if (list.hidden) {
      return;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(event.key === "ArrowDown" ? chosen + 1 : chosen < 0 ? -1 : chosen - 1);
    } else if ((event.key === "Enter" || event.key === "Tab") && (chosen >= 0 || isPartOfName())) {
      event.preventDefault();
      take(Math.max(chosen, 0));
    } else if (event.key === "Escape") {
      event.preventDefault();
      hide();
    }
  });
}
