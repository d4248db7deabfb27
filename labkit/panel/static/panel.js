// The live part of a LabPanel: status, numbers, bars, canvas, history. One message in `state` at
// most five times a second, and nothing is animated, because the browser shares its cores with what
// is being timed.

const capital = (text) => text[0].toUpperCase() + text.slice(1);
// What was timed is a step, or what the lab calls it.
const sideHeads = (step = "step") => [
  ...["", `${capital(step)} (median)`, "IQR", "Throughput", `First ${step}`, "Peak memory"],
];
// What is looked for first stands first: a narrow page shows the rest when it is scrolled.
const HEADS = ["#", "Settings", "Mode", "Factor", "Verdict", "95 % interval"];
HEADS.push("Baseline", "Candidate", "Peak memory");
const VERDICT = HEADS.indexOf("Verdict");
const CHARTS = { Time: drawTimes, Race: drawRace, Memory: drawMemory };
const CHART_NAMES = {
  Time: "Speed-up of each pair of blocks",
  Race: "Metric against training seconds",
  Memory: "Bytes alive after each operator of a step",
};

// The elements of the live part.
function build(el) {
  const code = element("pre", "source", el);
  const live = element("div", "live", el);
  const notice = element("div", "notice", live);
  notice.setAttribute("role", "status");
  const status = element("div", "status", live);
  // Read out by screen readers when it changes.
  status.setAttribute("role", "status");
  const bar = element("div", "bar", element("div", "progress", live));
  const results = element("div", "results", live);
  const head = element("div", "head", results);
  const speedup = element("div", "speedup", head);
  const caption = element("div", "caption", head);
  const verdict = element("span", "badge", head);
  const detail = element("div", "detail", head);
  const bars = element("div", "bars", results);
  const words = element("div", "words", live);
  const sentence = element("p", "sentence", words);
  const told = element("p", "told", words);
  const plot = element("div", "plot", live);
  const canvas = element("canvas", "canvas", plot);
  canvas.setAttribute("role", "img");
  const sides = element("table", "sides", live);
  const past = element("table", "history", element("div", "past", el));
  const copy = element("div", "copy", el);
  return {
    code, live, notice, status, bar, speedup, caption, verdict, detail, bars, sentence, told,
    plot, canvas, sides, past, copy,
  };
}

function draw(canvas, state) {
  (CHARTS[state.mode] ?? drawTimes)(canvas, state);
}

// What each trait of the model shows.
const shows = (page) => ({
  state: (state) => {
    const { live } = page;
    const mode = state.mode ?? "Time";
    live.classList.toggle("labkit-running", Boolean(state.running));
    live.classList.toggle("labkit-empty", !(state.bars || state.curves || state.sides));
    live.dataset.run = state.run ?? 0;
    live.dataset.mode = mode;
    live.dataset.verdict = state.verdict ?? "";
    page.bar.style.width = `${100 * (state.progress ?? 0)}%`;
    page.speedup.textContent = state.speedup ?? "";
    page.caption.textContent = state.speedup ? (state.caption ?? "") : "";
    page.detail.textContent = state.detail ?? "";
    badge(state.verdict ?? "", page.verdict, state.badge ?? state.verdict ?? "");
    if (state.running && state.verdict) page.verdict.textContent += " so far";
    page.sentence.textContent = state.sentence ?? "";
    page.told.textContent = state.told ?? "";
    fillBars(page.bars, state.bars);
    // What one number cannot say: the figure of a sweep, an output of the cell.
    live.closest(".labkit-panel")?.classList.toggle("labkit-figured", Boolean(state.figure));
    // Out of sight while it changes, unless the details are shown.
    if (!state.running || live.closest(".labkit-detailed")) {
      fill(page.sides, state.sides ? [sideHeads(state.step), ...state.sides] : [], (text) => text);
    }
    const others = (state.recorded ?? []).map(
      ([name, ratio]) => `; recorded on ${name}: ${ratio.toFixed(2)}×`,
    );
    const guess = state.guess ? `; your guess ${+state.guess.toPrecision(2)}×` : "";
    const text = `${page.speedup.textContent}, ${page.detail.textContent}${others.join("")}`;
    page.canvas.setAttribute("aria-label", `${CHART_NAMES[mode]}: ${text}${guess}`);
    draw(page.canvas, state);
  },
  status: ([text, tone]) => {
    const { status } = page;
    if (status.textContent !== text) status.textContent = text;
    status.dataset.tone = tone;
    // The results say it better; screen readers still hear it.
    status.classList.toggle("labkit-heard", tone === "good" && text.startsWith("Done"));
  },
  stale: (stale) => page.live.classList.toggle("labkit-stale", stale),
  notice: (text) => {
    page.notice.textContent = text;
    page.notice.hidden = !text;
  },
  code: (text) => {
    page.code.textContent = text;
    page.code.hidden = !text;
  },
  history: (runs) => {
    page.past.hidden = !runs.length;
    const rows = runs.map(([number, ...texts]) => [number, texts.slice(0, 2), ...texts.slice(2)]);
    fill(page.past, [HEADS, ...rows.reverse()], (text, column, row) => {
      if (row && column === 1) {
        const [differ, shared] = ["b", "small"].map((tag) => document.createElement(tag));
        [differ.textContent, shared.textContent] = text;
        return [differ, shared];
      }
      return row && column === VERDICT && text ? badge(text) : text;
    });
  },
  results: ({ html }) => {
    page.copy.replaceChildren();
    if (!html) return;
    // Made by labkit/show.py, which escapes all texts.
    element("div", "table", page.copy).innerHTML = html;
    const note = "Shown here because the page was reloaded. Run the cell again to have results in";
    element("p", "note", page.copy, `${note} the saved notebook.`);
  },
});

function render({ model, el }) {
  const page = build(el);
  const listeners = Object.entries(shows(page)).map(([name, show]) => {
    const listener = () => show(model.get(name));
    model.on(`change:${name}`, listener);
    return [name, listener];
  });
  const redraw = () => draw(page.canvas, model.get("state"));
  const theme = () => {
    const dark = document.body.dataset.jpThemeLight === "false";
    if (dark !== model.get("dark")) {
      model.set("dark", dark);
      model.save_changes();
    }
    redraw();
  };
  // The page says its theme before the theme's colours are loaded.
  const themeChanged = () => [0, 100, 400, 1500, 4000].forEach((wait) => setTimeout(theme, wait));
  const themes = new MutationObserver(themeChanged);
  const sizes = new ResizeObserver(redraw);
  const grown = new MutationObserver(() => root?.isConnected && adopt(root));
  let [root, gone] = [null, false];
  const attach = () => {
    root = el.closest(".labkit-panel");
    // Not in the page yet.
    if (!root && !gone) requestAnimationFrame(attach);
    if (!root || gone) return;
    adopt(root);
    for (const part of root.querySelectorAll(".labkit-top, .labkit-grid, .labkit-row")) {
      grown.observe(part, {
        childList: true,
        subtree: true,
        attributes: true,
        attributeFilter: ["class"],
      });
    }
    listeners.forEach(([, listener]) => listener());
    theme();
  };
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  sizes.observe(page.plot);
  attach();
  // So that the kernel sees when the page was reloaded.
  model.send({ page: String(performance.timeOrigin) });
  return () => {
    gone = true;
    listeners.forEach(([name, listener]) => model.off(`change:${name}`, listener));
    [themes, sizes, grown].forEach((observer) => observer.disconnect());
  };
}

export default { render };
