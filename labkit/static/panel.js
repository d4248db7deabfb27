// The live part of a LabPanel: status, numbers, canvas, history. One message in `state` at most five times a second, and
// nothing is animated, because the browser shares its cores with what is being timed.

const element = (tag, name, parent) => {
  const node = document.createElement(tag);
  node.className = `labkit-${name}`;
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

// A key pressed on a button or slider would else be a command for JupyterLab (`d d` deletes the cell), and screen readers
// would find sliders, switches and menus without names, and sliders with an index for a value.
const NAMES = { beside: "recorded machine", budget: "time budget", swept: "control to sweep", follow: "sweep on both sides" };
function adopt(root) {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const node of root.querySelectorAll("button, input, select, .noUi-handle")) {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
    const owner = node.closest('[class*="labkit-"]');
    const [, name, side] = owner.className.match(/labkit-(\w+)-(baseline|candidate|link)/) ?? [];
    const both = owner.classList.contains("labkit-linked") ? "both sides" : side;
    const own = Object.keys(NAMES).find((key) => owner.classList.contains(`labkit-${key}`));
    if (name || own) node.setAttribute("aria-label", name ? `${name}, ${both}` : NAMES[own]);
    const readout = owner.querySelector(".widget-readout");
    if (!readout) continue;
    node.setAttribute("aria-valuetext", readout.textContent);
    readout.removeAttribute("contenteditable"); // its text cannot be set by typing, so it need not take the focus
  }
}

const floats = (view) => (view ? new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)) : []);

function draw(canvas, state) {
  const box = canvas.parentElement;
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (!width || !height) return;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * scale, height * scale];
  const ink = canvas.getContext("2d");
  ink.scale(scale, scale);
  const style = getComputedStyle(box);
  const colour = (name) => style.getPropertyValue(`--labkit-${name}`);
  const points = floats(state.points); // ratios of the pairs, thinned
  const bands = floats(state.bands); // (pairs, low, high) after each update
  const [left, right, top, bottom] = [46, 12, 10, 22];
  const pairs = Math.max(state.pairs || 0, 8);
  // The bulk of the points decides the scale: an outlier must not flatten the rest.
  const sorted = Array.from(points).sort((a, b) => a - b);
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))] ?? 1;
  const recorded = state.recorded ?? []; // [label, speed-up] of other machines
  const ends = [...bands.slice(-2), ...recorded.map(([, ratio]) => ratio)]; // of the latest interval
  const low = Math.log(Math.min(0.97, at(0.05), ...ends)) - 0.02;
  const high = Math.log(Math.max(1.03, at(0.95), ...ends)) + 0.02;
  const x = (pair) => left + ((width - left - right) * pair) / pairs;
  const y = (ratio) => top + (height - top - bottom) * Math.min(1, Math.max(0, (high - Math.log(ratio)) / (high - low)));

  ink.font = `11px ${style.fontFamily}`;
  ink.textBaseline = "middle";
  ink.textAlign = "right";
  if (state.floor) {
    ink.fillStyle = colour("floor");
    ink.fillRect(left, y(Math.exp(state.floor)), width - left - right, y(Math.exp(-state.floor)) - y(Math.exp(state.floor)));
  }
  const [least, most] = [Math.exp(low), Math.exp(high)];
  const decades = [-3, -2, -1, 0, 1, 2, 3, 4].flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
  const step = decades.find((value) => (most - least) / value <= 5) ?? 1;
  const even = Array.from({ length: 6 }, (_, i) => (Math.ceil(least / step) + i) * step);
  const ticks = [1]; // even steps, or decades where the scale is visibly logarithmic
  for (const tick of most / least > 4 ? decades : even) {
    const free = ticks.every((other) => Math.abs(y(tick) - y(other)) > 13);
    if (tick >= least && tick <= most && free) ticks.push(tick);
  }
  for (const tick of ticks) {
    ink.fillStyle = colour(tick === 1 ? "text" : "faint");
    ink.fillText(`${+tick.toPrecision(3)}×`, left - 6, y(tick));
    if (tick !== 1) ink.fillStyle = colour("line");
    ink.fillRect(left, y(tick) - 0.5, width - left - right, 1);
  }
  ink.fillStyle = colour("faint");
  ink.fillText([state.pairs && `${state.pairs} pairs`, state.left].filter(Boolean).join(", "), width - right, height - 7);
  ink.textAlign = "left";
  const note = state.unrecorded ? `; ${state.unrecorded}` : "";
  ink.fillText(`Speed-up of each pair of blocks, with its 95 % interval${note}`, left, height - 7);

  ink.fillStyle = ink.strokeStyle = colour("recorded");
  recorded.forEach(([, ratio], i) => {
    ink.setLineDash([[7, 4], [2, 3], [9, 3, 2, 3]][i % 3]);
    ink.beginPath();
    ink.moveTo(left, y(ratio));
    ink.lineTo(width - right, y(ratio));
    ink.stroke();
  });
  ink.setLineDash([]);

  const last = bands.length / 3;
  const path = (edge, i) => ink.lineTo(x(bands[3 * i]), y(bands[3 * i + edge]));
  ink.beginPath();
  for (let i = 0; i < last; i++) path(1, i);
  for (let i = last - 1; i >= 0; i--) path(2, i);
  ink.closePath();
  ink.fillStyle = ink.strokeStyle = colour("band");
  ink.fill();
  ink.stroke(); // an interval too narrow to fill is still a line
  ink.fillStyle = colour("candidate");
  points.forEach((ratio, i) => {
    ink.beginPath();
    ink.arc(x(((i + 0.5) * state.pairs) / points.length), y(ratio), points.length > 120 ? 1.6 : 2.3, 0, 7);
    ink.fill();
  });
  recorded.forEach(([label, ratio]) => {
    const text = `${label}: ${ratio.toFixed(2)}×`;
    const under = y(ratio) > y(at(0.5)) && y(ratio) + 16 < height - bottom; // away from the reader's own points
    const middle = y(ratio) + (under ? 9 : -9);
    ink.fillStyle = colour("paper");
    ink.fillRect(left + 2, middle - 7, ink.measureText(text).width + 4, 14);
    ink.fillStyle = colour("recorded");
    ink.fillText(text, left + 4, middle);
  });
}

const badge = (verdict, node = element("span", "badge")) => {
  node.textContent = verdict;
  node.dataset.verdict = verdict;
  return node;
};
const SIDE_HEADS = ["", "Step (median)", "IQR", "Throughput", "First step", "Peak memory"];
const HEADS = ["#", "Settings", "Baseline", "Candidate", "Speed-up", "95 % interval", "Verdict", "Peak memory"];

function render({ model, el }) {
  const code = element("pre", "source", el);
  const live = element("div", "live", el);
  const status = element("div", "status", live);
  status.setAttribute("role", "status"); // read out by screen readers when it changes
  const bar = element("div", "bar", element("div", "progress", live));
  const results = element("div", "results", live);
  const head = element("div", "head", results);
  const speedup = element("div", "speedup", head);
  const verdict = element("span", "badge", head);
  const detail = element("div", "detail", head);
  const sides = element("table", "sides", results);
  const plot = element("div", "plot", live);
  const canvas = element("canvas", "canvas", plot);
  canvas.setAttribute("role", "img");
  const past = element("table", "history", element("div", "past", el));
  const copy = element("div", "copy", el);

  const shown = {
    state: (state) => {
      live.classList.toggle("labkit-running", Boolean(state.running));
      live.classList.toggle("labkit-empty", !state.sides);
      live.dataset.run = state.run ?? 0;
      live.dataset.verdict = state.verdict ?? "";
      bar.style.width = `${100 * (state.progress ?? 0)}%`;
      speedup.textContent = state.speedup ?? "";
      detail.textContent = state.detail ?? "";
      badge(state.verdict ?? "", verdict);
      if (state.running) verdict.textContent += " so far";
      fill(sides, [SIDE_HEADS, ...(state.sides ?? [])], (text) => text);
      const others = (state.recorded ?? []).map(([label, ratio]) => `; recorded on ${label}: ${ratio.toFixed(2)}×`).join("");
      const text = `${speedup.textContent}, ${detail.textContent}${others}`;
      canvas.setAttribute("aria-label", `Speed-up of each pair of blocks: ${text}`);
      draw(canvas, state);
    },
    status: ([text, tone]) => {
      if (status.textContent !== text) status.textContent = text;
      status.dataset.tone = tone;
    },
    code: (text) => {
      code.textContent = text;
      code.hidden = !text;
    },
    history: (runs) => {
      past.hidden = !runs.length;
      const rows = runs.map(([number, differ, shared, ...rest]) => [number, [differ, shared], ...rest]).reverse();
      fill(past, [HEADS, ...rows], (text, column, row) => {
        if (row && column === 1) {
          const [differ, shared] = ["b", "small"].map((tag) => document.createElement(tag));
          [differ.textContent, shared.textContent] = text;
          return [differ, shared];
        }
        return row && column === 6 ? badge(text) : text;
      });
    },
    results: ({ png, html }) => {
      copy.replaceChildren();
      if (!png) return;
      const picture = element("img", "figure", copy);
      picture.alt = "The run as a figure; the table below has its numbers.";
      picture.src = URL.createObjectURL(new Blob([png], { type: "image/png" }));
      picture.onload = () => URL.revokeObjectURL(picture.src);
      element("div", "table", copy).innerHTML = html; // made by labkit/html.py, which escapes all texts
      element("p", "note", copy).textContent =
        "Shown here because the page was reloaded. Run the cell again to have results in the saved notebook.";
    },
  };
  const listeners = Object.entries(shown).map(([name, show]) => {
    const listener = () => show(model.get(name));
    model.on(`change:${name}`, listener);
    return [name, listener];
  });
  const theme = () => {
    const dark = document.body.dataset.jpThemeLight === "false";
    if (dark !== model.get("dark")) {
      model.set("dark", dark);
      model.save_changes();
    }
    draw(canvas, model.get("state"));
  };
  // The page says its theme before the theme's colours are loaded.
  const themeChanged = () => [0, 100, 400, 1500, 4000].forEach((wait) => setTimeout(theme, wait));
  const themes = new MutationObserver(themeChanged);
  const sizes = new ResizeObserver(() => draw(canvas, model.get("state")));
  const grown = new MutationObserver(() => root?.isConnected && adopt(root));
  let [root, gone] = [null, false];
  const attach = () => {
    root = el.closest(".labkit-panel");
    if (!root && !gone) requestAnimationFrame(attach); // not in the page yet
    if (!root || gone) return;
    adopt(root);
    for (const part of root.querySelectorAll(".labkit-grid, .labkit-row")) {
      grown.observe(part, { childList: true, subtree: true });
    }
    listeners.forEach(([, listener]) => listener());
    theme();
  };
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  sizes.observe(plot);
  attach();
  model.send({ page: String(performance.timeOrigin) }); // so that the kernel sees when the page was reloaded
  return () => {
    gone = true;
    listeners.forEach(([name, listener]) => model.off(`change:${name}`, listener));
    [themes, sizes, grown].forEach((observer) => observer.disconnect());
  };
}

export default { render };
