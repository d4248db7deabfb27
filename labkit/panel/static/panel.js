// The live part of a LabPanel. Its HTML comes from labkit/panel/view.py, which escapes all texts;
// here it is put in place, named for screen readers, and kept from JupyterLab's keys. Nothing is
// animated, because the browser shares its cores with what is being timed.

const element = (tag, name, parent, text) => {
  const node = document.createElement(tag);
  node.className = `labkit-${name}`;
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
};

// The elements of the live part.
function build(el) {
  const code = element("pre", "source", el);
  const live = element("div", "live", el);
  const line = element("div", "line", live);
  const status = element("div", "status", line);
  const left = element("div", "left", line);
  const bar = element("div", "bar", element("div", "progress", live));
  const results = element("div", "results", live);
  const head = element("div", "head", results);
  const picture = element("div", "picture", results);
  const sure = element("details", "sure", live);
  element("summary", "how", sure, "How sure?");
  const grounds = element("div", "grounds", sure);
  const notice = element("div", "notice", live);
  const past = element("div", "past", el);
  // Read out by screen readers when they change.
  [notice, status].forEach((node) => node.setAttribute("role", "status"));
  return { code, live, notice, status, left, bar, head, picture, sure, grounds, past };
}

// To lay the page out anew takes time from what is measured.
function put(node, html = "") {
  if (node.labkitHtml === html) return;
  node.labkitHtml = html;
  node.innerHTML = html;
}

// What each trait of the model shows.
const shows = (page) => ({
  state: (state) => {
    const { live } = page;
    live.classList.toggle("labkit-running", Boolean(state.running));
    live.dataset.run = state.run ?? 0;
    live.dataset.mode = state.mode ?? "Time";
    live.dataset.verdict = state.verdict ?? "";
    page.bar.style.width = `${100 * (state.progress ?? 0)}%`;
    page.left.textContent = state.left ?? "";
    put(page.head, state.head);
    put(page.picture, state.picture);
    put(page.grounds, state.sure);
    page.sure.classList.toggle("labkit-none", !state.sure);
  },
  status: ([text, tone]) => {
    const { status } = page;
    if (status.textContent !== text) status.textContent = text;
    status.dataset.tone = tone;
    // The result says it better; screen readers still hear it.
    status.classList.toggle("labkit-heard", tone === "good" && text.startsWith("Done"));
  },
  busy: (busy) => {
    const root = page.live.closest(".labkit-panel");
    if (!root) return;
    const [run, stop] = ["run", "stop"].map((name) => root.querySelector(`button.labkit-${name}`));
    const [gone, come] = busy ? [run, stop] : [stop, run];
    const focused = document.activeElement === gone;
    root.classList.toggle("labkit-busy", busy);
    if (focused) come.focus();
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
  history: (html) => put(page.past, html),
});

// The names of what has no name of its own.
const NAMES = {
  beside: "recorded machine",
  budget: "time budget",
  swept: "control to sweep",
  follow: "sweep on both sides",
  guess: "your bet",
  quick: "run on change",
};

const nameOf = (owner) => {
  const found = owner.className.match(/labkit-(\w+)-(baseline|candidate)/);
  if (found) {
    const shared = owner.classList.contains("labkit-shared");
    return `${found[1]}, ${shared ? "both sides" : found[2]}`;
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
  for (const node of root.querySelectorAll("button, input, select, summary, .noUi-handle")) {
    node.setAttribute(suppress, "true");
    const owner = node.closest('[class*="labkit-"]');
    const name = nameOf(owner);
    const chosen = owner.matches(".labkit-modes, .labkit-choices");
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

async function render({ model, el }) {
  const page = build(el);
  const [told] = model.get("children");
  const live = await model.widget_manager.get_model(told.replace("IPY_MODEL_", ""));
  const listeners = Object.entries(shows(page)).map(([name, show]) => {
    const listener = () => show(live.get(name));
    live.on(`change:${name}`, listener);
    return [name, listener];
  });
  let [root, gone] = [null, false];
  const grown = new MutationObserver(() => root?.isConnected && adopt(root));
  const attach = () => {
    root = el.closest(".labkit-panel");
    // Not in the page yet.
    if (!root && !gone) requestAnimationFrame(attach);
    if (!root || gone) return;
    adopt(root);
    const watched = { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] };
    for (const part of root.querySelectorAll(".labkit-top, .labkit-technique, .labkit-row, .labkit-grid")) {
      grown.observe(part, watched);
    }
    listeners.forEach(([, listener]) => listener());
  };
  attach();
  // So that the kernel sees when the page was reloaded.
  model.send({ page: String(performance.timeOrigin) });
  return () => {
    gone = true;
    listeners.forEach(([name, listener]) => live.off(`change:${name}`, listener));
    grown.disconnect();
  };
}

export default { render };
