// Elements of the panel: made, named for screen readers, and kept from JupyterLab's keys.

const element = (tag, name, parent, text) => {
  const node = document.createElement(tag);
  node.className = `labkit-${name}`;
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
};

function fill(table, rows, cell) {
  table.replaceChildren();
  rows.forEach((texts, number) => {
    const row = document.createElement("tr");
    texts.forEach((text, column) => {
      const node = document.createElement(number && column ? "td" : "th");
      node.scope = number ? "row" : "col";
      node.append(...[cell(text, column, number)].flat());
      row.append(node);
    });
    table.append(row);
  });
}

const badge = (verdict, node = element("span", "badge"), text = verdict) => {
  node.textContent = text;
  node.dataset.verdict = verdict;
  return node;
};

// The names of what has no name of its own.
const NAMES = {
  beside: "recorded machine",
  budget: "time budget",
  swept: "control to sweep",
  follow: "sweep on both sides",
  guess: "your guess",
  quick: "run on change",
};

const nameOf = (owner) => {
  const found = owner.className.match(/labkit-(\w+)-(baseline|candidate|link)/);
  if (found) {
    const linked = owner.classList.contains("labkit-linked");
    return `${found[1]}, ${linked ? "both sides" : found[2]}`;
  }
  const own = Object.keys(NAMES).find((key) => owner.classList.contains(`labkit-${key}`));
  return own && NAMES[own];
};

// A key pressed on a button or slider would else be a command for JupyterLab (`d d` deletes the
// cell), and screen readers would find sliders, switches and menus without names, and sliders with
// an index for a value.
function adopt(root) {
  const suppress = "data-lm-suppress-shortcuts";
  root.setAttribute(suppress, "true");
  for (const node of root.querySelectorAll("button, input, select, .noUi-handle")) {
    node.setAttribute(suppress, "true");
    const owner = node.closest('[class*="labkit-"]');
    const name = nameOf(owner);
    const chosen = owner.classList.contains("labkit-modes");
    if (name && !chosen) node.setAttribute("aria-label", name);
    const pressed = owner.classList.contains("labkit-active") || node.matches(".mod-active");
    if (node.matches("button") && (chosen || owner.classList.contains("labkit-scenario"))) {
      node.setAttribute("aria-pressed", String(pressed));
    }
    if (owner.classList.contains("labkit-guess")) {
      const text = root.querySelector(".labkit-guessed")?.textContent ?? "";
      node.setAttribute("aria-valuetext", text);
    }
    const readout = owner.querySelector(".widget-readout");
    if (!readout) continue;
    node.setAttribute("aria-valuetext", readout.textContent);
    // Its text cannot be set by typing, so it need not take the focus.
    readout.removeAttribute("contenteditable");
  }
}

// Bars of both sides, each group on a scale of its own: [title, [[side, length, low, high, text]]].
// They are made once and then moved: to lay the page out anew takes time from what is measured.
function fillBars(box, groups) {
  const rows = (groups ?? []).flatMap(([, sides]) => sides);
  const shape = (groups ?? []).map(([title, sides]) => `${title} ${sides.length}`).join();
  if (box.dataset.shape !== shape) makeBars(box, groups ?? []);
  box.dataset.shape = shape;
  const tracks = box.querySelectorAll(".labkit-track");
  const values = box.querySelectorAll(".labkit-value");
  rows.forEach(([, length, low, high, text], number) => {
    const [bar, whisker] = tracks[number].children;
    bar.style.width = `${100 * (length ?? 0)}%`;
    whisker.hidden = low === null || high === null;
    whisker.style.left = `${100 * (low ?? 0)}%`;
    whisker.style.width = `${100 * ((high ?? 0) - (low ?? 0))}%`;
    if (values[number].textContent !== text) values[number].textContent = text;
  });
}

function makeBars(box, groups) {
  box.replaceChildren();
  for (const [title, sides] of groups) {
    element("div", "title", box, title);
    sides.forEach(([side], number) => {
      element("div", "label", box, side);
      const track = element("div", `track labkit-side${number}`, box);
      track.setAttribute("aria-hidden", "true");
      element("i", "length", track);
      element("i", "whisker", track);
      element("div", "value", box);
    });
  }
}

const floats = (view) => {
  if (!view) return [];
  const { buffer, byteOffset, byteLength } = view;
  return new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength));
};
