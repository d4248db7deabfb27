// The live part of a LabPanel: status, numbers and the canvas. One message in `state` at most five times a second; nothing is
// animated, because the browser shares its cores with what is being timed.

const element = (tag, name, parent) => {
  const node = document.createElement(tag);
  node.className = `labkit-${name}`;
  parent?.append(node);
  return node;
};

// ipywidgets gives sliders and switches no accessible name, and JupyterLab would take a key pressed on them for a command.
function adopt(root, labels) {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const node of root.querySelectorAll("button, input, select, .noUi-handle")) {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
    const owner = node.closest(".labkit-named");
    const name = owner && Object.keys(labels).find((key) => owner.classList.contains(key));
    if (name) node.setAttribute("aria-label", labels[name]);
  }
}

const floats = (view) => new Float32Array(view?.buffer?.slice(view.byteOffset, view.byteOffset + view.byteLength) ?? 0);

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
  const points = floats(state.points); // ratios, thinned to at most a few hundred
  const bands = floats(state.bands); // (pairs, low, high) after each update
  const [left, right, top, bottom] = [46, 12, 10, 20];
  const pairs = Math.max(state.pairs || 0, 8);
  // The middle of the points decides the scale: one outlier must not flatten the rest.
  const sorted = [...points].sort((a, b) => a - b);
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))] ?? 1;
  const low = Math.log(Math.min(0.97, at(0.03), ...(state.ends ?? []))) - 0.01;
  const high = Math.log(Math.max(1.03, at(0.97), ...(state.ends ?? []))) + 0.01;
  const x = (pair) => left + ((width - left - right) * pair) / pairs;
  const y = (ratio) => top + (height - top - bottom) * Math.min(1, Math.max(0, (high - Math.log(ratio)) / (high - low)));

  ink.font = `11px ${style.fontFamily}`;
  ink.textBaseline = "middle";
  if (state.floor) {
    ink.fillStyle = colour("floor");
    ink.fillRect(left, y(Math.exp(state.floor)), width - left - right, y(Math.exp(-state.floor)) - y(Math.exp(state.floor)));
  }
  ink.textAlign = "right";
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000];
  const span = Math.exp(high) - Math.exp(low);
  const step = steps.find((value) => span / value <= 5) ?? span;
  for (let tick = Math.ceil(Math.exp(low) / step) * step; tick <= Math.exp(high); tick += step) {
    const same = Math.abs(tick - 1) < 1e-9;
    ink.fillStyle = same ? colour("text") : colour("faint");
    ink.fillText(`${tick.toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0)}×`, left - 6, y(tick));
    ink.fillRect(left, y(tick) - 0.5, width - left - right, same ? 1.5 : 0.5);
  }
  ink.textAlign = "left";
  ink.fillStyle = colour("faint");
  ink.fillText("speed-up of each pair", left, height - 8);
  ink.textAlign = "right";
  ink.fillText(state.pairs ? `${state.pairs} pairs` : "", width - right, height - 8);

  if (bands.length >= 6) {
    const path = (edge, from, to, by) => {
      for (let i = from; i !== to; i += by) ink.lineTo(x(bands[3 * i]), y(bands[3 * i + edge]));
    };
    const last = bands.length / 3;
    ink.beginPath();
    path(1, 0, last, 1);
    path(2, last - 1, -1, -1);
    ink.fillStyle = colour("band");
    ink.fill();
  }
  ink.fillStyle = colour("candidate");
  points.forEach((ratio, i) => {
    ink.beginPath();
    ink.arc(x(((i + 0.5) * state.pairs) / points.length), y(ratio), points.length > 150 ? 1.5 : 2.2, 0, 7);
    ink.fill();
  });
}

function render({ model, el }) {
  const live = element("div", "live", el);
  const status = element("div", "status", live);
  status.setAttribute("role", "status"); // read out by screen readers when it changes
  const bar = element("div", "bar", element("div", "progress", live));
  const results = element("div", "results", live);
  const head = element("div", "head", results);
  const speedup = element("div", "speedup", head);
  const badge = element("div", "badge", head);
  const detail = element("div", "detail", head);
  const table = element("table", "arms", results);
  const plot = element("div", "plot", live);
  const canvas = element("canvas", "canvas", plot);
  canvas.setAttribute("role", "img");

  const update = () => {
    const state = model.get("state");
    live.classList.toggle("labkit-running", Boolean(state.running));
    live.classList.toggle("labkit-empty", !state.arms);
    bar.style.width = `${100 * (state.progress ?? 0)}%`;
    speedup.textContent = state.speedup ?? "";
    badge.textContent = state.badge ?? "";
    live.dataset.verdict = badge.dataset.verdict = state.verdict ?? "";
    detail.textContent = state.detail ?? "";
    table.replaceChildren();
    for (const [index, cells] of (state.arms ?? []).entries()) {
      const row = element("tr", "arm", table);
      cells.forEach((text, column) => {
        const cell = element(index && column ? "td" : "th", "cell", row);
        cell.textContent = text;
      });
    }
    canvas.setAttribute("aria-label", `Speed-up of each pair of blocks. ${speedup.textContent} ${detail.textContent}`);
    draw(canvas, state);
  };
  const say = () => {
    status.textContent = model.get("status");
    status.dataset.tone = model.get("tone");
  };
  const theme = () => {
    const dark = document.body.dataset.jpThemeLight === "false";
    if (dark !== model.get("dark")) {
      model.set("dark", dark);
      model.save_changes();
    }
    draw(canvas, model.get("state"));
  };
  model.on("change:state", update);
  model.on("change:status", say);
  model.on("change:tone", say);
  const watch = new MutationObserver(theme);
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const resize = new ResizeObserver(() => draw(canvas, model.get("state")));
  resize.observe(plot);
  const grow = new MutationObserver(() => attach());
  let gone = false;
  const attach = () => {
    const root = el.closest(".labkit-panel");
    if (gone) return;
    if (!root) return requestAnimationFrame(attach); // not in the page yet
    adopt(root, model.get("labels"));
    grow.observe(root, { childList: true, subtree: true });
  };
  attach();
  update();
  say();
  theme();
  model.send({ page: String(performance.timeOrigin) }); // a new page has lost the link from runs to the cell's outputs
  return () => {
    gone = true;
    model.off("change:state", update);
    model.off("change:status", say);
    model.off("change:tone", say);
    [watch, resize, grow].forEach((observer) => observer.disconnect());
  };
}

export default { render };
