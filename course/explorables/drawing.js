// What all explorables share: a frame with controls, and a pen for SVG.
// Python puts this file before NAME.js and makes one module of the two.

const css = (words) => words.split(" ").filter(Boolean).map((word) => `xp-${word}`).join(" ");

function html(tag, look, parent, text) {
  const node = document.createElement(tag);
  node.className = css(look);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

function svg(tag, look, attributes, parent) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  if (look) node.setAttribute("class", css(look));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent?.append(node);
  return node;
}

// ---------------------------------------------------------------- numbers

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

// low, low + step, ..., high: the values of a slider
function steps(low, high, step) {
  const count = Math.round((high - low) / step) + 1;
  return Array.from({ length: count }, (_, i) => Number((low + i * step).toFixed(9)));
}

// Index of the value that is nearest.
function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i;
  });
  return best;
}

// Uniform numbers in [0, 1), the same for the same seed: mulberry32.
function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Normal numbers (mean 0, standard deviation 1), by Box and Muller.
function normal(next) {
  const [first, second] = [next(), next()];
  return Math.sqrt(-2 * Math.log(1 - first)) * Math.cos(2 * Math.PI * second);
}

function linear(low, high, from, to) {
  const scale = (value) => from + ((value - low) / (high - low)) * (to - from);
  scale.back = (place) => low + ((place - from) / (to - from)) * (high - low);
  return scale;
}

function logarithmic(low, high, from, to) {
  const inner = linear(Math.log(low), Math.log(high), from, to);
  const scale = (value) => inner(Math.log(value));
  scale.back = (place) => Math.exp(inner.back(place));
  return scale;
}

// About `count` round numbers between low and high.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
  return steps(Math.ceil(low / step) * step, Math.floor(high / step + 1e-9) * step, step);
}

// ---------------------------------------------------------------- the pen

// Draws into one SVG group. `look` is words of explorable.css: "fill blue", "line grey dash".
class Pen {
  constructor(layer) {
    this.layer = layer;
  }

  clear() {
    this.layer.replaceChildren();
  }

  line(x1, y1, x2, y2, look) {
    return svg("line", `line ${look}`, { x1, y1, x2, y2 }, this.layer);
  }

  rect(x, y, width, height, look, round = 0) {
    const [w, h] = [Math.max(0, width), Math.max(0, height)];
    return svg("rect", look, { x, y, width: w, height: h, rx: round }, this.layer);
  }

  dot(x, y, radius, look) {
    return svg("circle", look, { cx: x, cy: y, r: radius }, this.layer);
  }

  // points: pairs [x, y]
  path(points, look) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    return svg("path", look, { d }, this.layer);
  }

  arrow(x1, y1, x2, y2, look) {
    const length = Math.hypot(x2 - x1, y2 - y1);
    if (length < 3) return;
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    const [bx, by] = [x2 - 9 * dx, y2 - 9 * dy];
    this.line(x1, y1, bx, by, look);
    const head = [[x2, y2], [bx - 4.5 * dy, by + 4.5 * dx], [bx + 4.5 * dy, by - 4.5 * dx]];
    this.path(head, `fill ${look}`);
  }

  text(x, y, words, look = "") {
    const node = svg("text", `text ${look}`, { x, y }, this.layer);
    node.textContent = words;
    return node;
  }
}

// ---------------------------------------------------------------- the frame

// Pixels below which charts stand under each other.
const NARROW = 680;

// What the result says while a bet is open.
const BET_FIRST = "Bet first, or move something.";

// A function `render` that tells the kernel, where there is one, of each bet that was judged.
const reporting = (render) => ({ model, el }) => {
  const report = ({ detail }) => {
    model.set("bet", detail);
    model.save_changes();
  };
  el.addEventListener("xp-bet", report);
  const close = render({ model, el });
  return () => {
    el.removeEventListener("xp-bet", report);
    close();
  };
};

// A title, controls, a stage to draw on, a result in words, a caption.
// `state`: what the controls change. `draw(pen, state, size)` is called after every change;
// it returns the result in words. `height(width)`: of the stage, in pixels.
// `size.revealed`: whether the picture may show the answer; true where there is no bet.
class Frame {
  constructor(el, { name, ask, task, caption, state, height, draw }) {
    this.ask = ask;
    this.state = state;
    this.height = height;
    this.paint = draw;
    this.watchers = [];
    this.moved = false;
    this.root = html("section", name, el);
    this.root.classList.add("course-explorable");
    // Keys pressed here are no commands of JupyterLab.
    this.root.setAttribute("data-lm-suppress-shortcuts", "true");
    this.root.setAttribute("aria-label", ask);
    html("div", "ask", this.root, ask);
    this.wagers = html("div", "wagers", this.root);
    html("div", "task", this.root, task);
    this.bar = html("div", "bar", this.root);
    this.controls = html("div", "controls", this.bar);
    this.stage = html("div", "stage", this.root);
    this.picture = svg("svg", "picture", { role: "img" }, this.stage);
    this.pen = new Pen(svg("g", "", {}, this.picture));
    this.result = html("div", "result", this.root);
    this.result.setAttribute("role", "status");
    html("div", "caption", this.root, caption);
    this.sizes = new ResizeObserver(() => this.request());
    this.sizes.observe(this.stage);
  }

  // A move of the reader's: a bet that is still playing is judged, and what was said of a bet goes.
  set(changes) {
    this.settle(false);
    this.put(changes);
  }

  put(changes) {
    Object.assign(this.state, changes);
    this.moved = true;
    if (this.wager) this.wager.fresh = false;
    this.request();
  }

  // The reader has bet or moved something, or there is nothing to bet on.
  revealed() {
    return this.moved || !this.betting || this.wager !== undefined;
  }

  // Of the stage, in pixels.
  size() {
    const width = this.stage.clientWidth;
    return { width, narrow: width < NARROW, revealed: this.revealed() };
  }

  setter(name) {
    return (value) => this.set({ [name]: value });
  }

  // Several changes between two frames are drawn once.
  request() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = undefined;
      this.draw();
    });
  }

  draw() {
    const width = this.stage.clientWidth;
    if (!width) return;
    const height = this.height(width);
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("height", height);
    this.pen.clear();
    const words = this.told(this.paint(this.pen, this.state, this.size()));
    if (this.result.textContent !== words) this.result.textContent = words;
    this.picture.setAttribute("aria-label", words);
    this.watchers.forEach((watch) => watch());
  }

  // The result, behind what became of the bet; nothing of it before.
  told(words) {
    if (!this.revealed()) return BET_FIRST;
    if (!this.wager?.fresh) return words;
    const { text, right, answer } = this.wager;
    if (answer) return `Yours: ${text}. It is ${answer}. ${words}`;
    return `Your bet, ${text}, is ${right ? "right" : "wrong"}. ${words}`;
  }

  // A row of buttons under the question. `options`: pairs [value, text], one of them right;
  // `answer(state)`: all right values; `name`: of the setting that is asked for, if it is one;
  // `play(value)`: what a bet changes, to be seen at once; `film`: what then runs, as of a player,
  // before the first bet is judged. The verdict is said at its end, until the reader moves
  // something. A wrong one leaves the answer to be found by moving, or shown by a button.
  bet({ name = "", options, answer, play = () => ({}), film }) {
    this.betting = true;
    this.wagers.dataset.name = name;
    this.wagers.setAttribute("role", "group");
    this.adopt(this.wagers, "your bet");
    html("span", "label", this.wagers, "Your bet:");
    for (const [value, text] of options) {
      const node = html("button", "wager", this.wagers, text);
      node.type = "button";
      node.value = JSON.stringify(value);
      node.setAttribute("aria-pressed", "false");
      this.adopt(node, `bet: ${text}`);
      node.addEventListener("click", () => {
        const answers = answer(this.state);
        const asked = structuredClone(this.state);
        const right = answers.includes(value);
        for (const other of this.wagers.querySelectorAll(".xp-wager")) {
          other.setAttribute("aria-pressed", other === node);
          other.classList.remove("xp-answer");
        }
        show.hidden = true;
        this.due = (fresh) => {
          this.wager = { text, right, fresh, asked };
          node.classList.add(right ? "xp-right" : "xp-wrong");
          show.hidden = right;
          const found = options.filter(([other]) => answers.includes(other));
          this.report({ bet: text, answer: found.map(([, words]) => words).join(", "), right });
        };
        this.playBet(play(value), film);
      });
    }
    const show = html("button", "show", this.wagers, "Show the answer");
    Object.assign(show, { type: "button", hidden: true });
    this.adopt(show, "show the answer");
    show.addEventListener("click", () => {
      // Of the question as it was asked, whatever has been moved since; a film stays at its end.
      const end = film ? { [film.name]: this.state[film.name] } : {};
      Object.assign(this.state, structuredClone(this.wager.asked), end);
      const answers = answer(this.state);
      const index = options.findIndex(([value]) => answers.includes(value));
      if (index >= 0) Object.assign(this.state, play(options[index][0]));
      const found = index < 0 ? "none of them" : options[index][1];
      Object.assign(this.wager, { answer: found, fresh: true });
      const nodes = this.wagers.querySelectorAll(".xp-wager");
      nodes.forEach((node, i) => node.classList.toggle("xp-answer", i === index));
      nodes[Math.max(0, index)].focus();
      show.hidden = true;
      this.request();
    });
  }

  // What became of a bet, for who listens: see `reporting`.
  report(detail) {
    const told = { bubbles: true, detail: { question: this.ask, ...detail } };
    this.root.dispatchEvent(new CustomEvent("xp-bet", told));
  }

  // Shows what a bet changes: its film first, where there is one that no bet has begun yet.
  playBet(changes, film) {
    const hurried = this.filmed || this.playing !== undefined;
    const seen = Object.entries(changes).every(([name, value]) => this.state[name] === value);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.stop();
    Object.assign(this.state, changes);
    this.wager = undefined;
    if (!film || hurried || seen || still) return this.settle(true);
    this.filmed = true;
    this.put({ [film.name]: film.values[0] });
    this.run(film);
  }

  // Judges the bet that waits for its film. `fresh`: the verdict stands before the result.
  settle(fresh) {
    const judge = this.due;
    this.due = undefined;
    judge?.(fresh);
    this.request();
  }

  // Another question of the same kind: nothing is bet on it yet.
  reopen() {
    this.due = undefined;
    this.stop();
    this.wager = undefined;
    this.moved = false;
    this.filmed = false;
    for (const node of this.wagers.querySelectorAll(".xp-wager")) {
      node.setAttribute("aria-pressed", "false");
      node.classList.remove("xp-right", "xp-wrong", "xp-answer");
    }
    this.wagers.querySelector(".xp-show").hidden = true;
    this.request();
  }

  // Takes the focus, and keeps its keys to itself.
  adopt(node, label) {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
    node.setAttribute("aria-label", label);
  }

  // `values`: what the slider can be set to, or a function that tells it; `text(value)`: how it is
  // shown; `change(value)`: what a move does, if more than to set `name`.
  slider({ name, label, values, text = String, change = this.setter(name) }) {
    const list = typeof values === "function" ? values : () => values;
    const box = html("label", "control", this.controls);
    const head = html("span", "head", box);
    html("span", "label", head, label);
    const shown = html("b", "value", head);
    const input = html("input", `range ${name}`, box);
    Object.assign(input, { type: "range", min: 0, step: 1 });
    this.adopt(input, label);
    input.addEventListener("input", () => change(list()[Number(input.value)]));
    this.watch(() => {
      const index = nearest(list(), this.state[name]);
      const last = list().length - 1;
      Object.assign(input, { max: last, value: index });
      input.style.setProperty("--part", `${(100 * index) / Math.max(1, last)}%`);
      shown.textContent = text(this.state[name]);
      input.setAttribute("aria-valuetext", text(this.state[name]));
    });
  }

  // One of a few: `options` are pairs [value, text]; `change` as of a slider.
  choice({ name, label, options, change = this.setter(name) }) {
    const box = html("fieldset", "control", this.controls);
    html("legend", "label", box, label);
    const row = html("div", "choice", box);
    const group = `xp-${name}-${Math.random().toString(36).slice(2)}`;
    const inputs = options.map(([value, text]) => {
      const option = html("label", "option", row);
      const input = html("input", `radio ${name}-${value}`, option);
      Object.assign(input, { type: "radio", name: group });
      this.adopt(input, `${label}: ${text}`);
      html("span", "", option, text);
      input.addEventListener("change", () => change(value));
      return [input, value];
    });
    this.watch(() => {
      for (const [input, value] of inputs) input.checked = this.state[name] === value;
    });
  }

  // One of many, with long names.
  menu({ name, label, options, change = this.setter(name) }) {
    const box = html("label", "control", this.controls);
    html("span", "label", box, label);
    const select = html("select", `menu ${name}`, box);
    options.forEach(([value, text]) => select.append(new Option(text, value)));
    this.adopt(select, label);
    select.addEventListener("change", () => change(select.value));
    this.watch(() => (select.value = this.state[name]));
  }

  // `text(state)`: what stands on the button.
  button({ name, text, press }) {
    const node = html("button", `button ${name}`, this.buttons());
    node.type = "button";
    node.addEventListener("click", press);
    this.watch(() => {
      node.textContent = text(this.state);
      this.adopt(node, node.textContent);
    });
  }

  buttons() {
    this.row ??= html("div", "buttons", this.bar);
    return this.row;
  }

  // A button that lets `name` run through `values` in so many seconds.
  player(film) {
    this.button({
      name: "play",
      text: () => (this.playing ? "Pause" : "Play"),
      press: () => (this.playing ? this.stop() : this.run(film)),
    });
  }

  // From where it is; from the beginning where it is at its end.
  run({ name, values, seconds }) {
    const last = values.length - 1;
    const now = nearest(values, this.state[name]);
    const first = now === last ? 0 : now;
    const begun = performance.now();
    const move = (time) => {
      const index = first + Math.floor(((time - begun) / 1000 / seconds) * values.length);
      this.put({ [name]: values[clamp(index, first, last)] });
      this.playing = index < last ? requestAnimationFrame(move) : undefined;
      if (index >= last) this.settle(true);
    };
    this.playing = requestAnimationFrame(move);
    this.request();
  }

  stop() {
    cancelAnimationFrame(this.playing);
    this.playing = undefined;
    this.request();
  }

  // A grip on the stage, to be dragged or moved by arrow keys.
  // `from(x, y)`: the value that a place on the stage means; `draw` calls put(x, y).
  // `values`, `text` and `change` as of a slider.
  grip({ name, label, values, text = String, from, look = "", change = this.setter(name) }) {
    const list = typeof values === "function" ? values : () => values;
    const node = html("div", `grip ${name} ${look}`, this.stage);
    node.tabIndex = 0;
    node.setAttribute("role", "slider");
    this.adopt(node, label);
    const to = (index) => change(list()[clamp(index, 0, list().length - 1)]);
    node.addEventListener("keydown", (event) => {
      const now = nearest(list(), this.state[name]);
      const up = { ArrowRight: 1, ArrowUp: 1, PageUp: 5 };
      const moves = { ...up, ArrowLeft: -1, ArrowDown: -1, PageDown: -5 };
      const ends = { Home: 0, End: list().length - 1 };
      if (event.key in moves) to(now + moves[event.key]);
      else if (event.key in ends) to(ends[event.key]);
      else return;
      event.preventDefault();
    });
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.focus();
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      if (!node.hasPointerCapture(event.pointerId)) return;
      const box = this.stage.getBoundingClientRect();
      to(nearest(list(), from(event.clientX - box.left, event.clientY - box.top)));
    });
    this.watch(() => {
      node.setAttribute("aria-valuemin", list()[0]);
      node.setAttribute("aria-valuemax", list()[list().length - 1]);
      node.setAttribute("aria-valuenow", this.state[name]);
      node.setAttribute("aria-valuetext", text(this.state[name]));
    });
    return (x, y) => {
      node.style.left = `${x}px`;
      node.style.top = `${y}px`;
    };
  }

  watch(update) {
    this.watchers.push(update);
    update();
  }

  close() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.waiting);
    cancelAnimationFrame(this.playing);
  }
}

// ---------------------------------------------------------------- parts of charts

// Grid lines with their numbers at the left edge.
function rows(pen, values, y, left, right, text = String) {
  for (const value of values) {
    pen.line(left, y(value), right, y(value), "hair");
    pen.text(left - 7, y(value) + 4, text(value), "small faint end");
  }
}

// Marks with their numbers at the bottom.
function columns(pen, values, x, bottom, text = String) {
  for (const value of values) {
    pen.line(x(value), bottom, x(value), bottom + 4, "hair");
    pen.text(x(value), bottom + 17, text(value), "small faint middle");
  }
}

// What the colours mean, in as many lines as there is room for. An entry: a look, words, and
// "dot" or "line" where a box is not what it looks like.
function legend(pen, entries, { left, right, top }) {
  let [x, y] = [left, top];
  for (const [look, words, mark] of entries) {
    const text = pen.text(x + 15, y + 9, words, "small faint");
    const width = 15 + text.getComputedTextLength();
    if (x > left && x + width > right) {
      [x, y] = [left, y + 18];
      text.setAttribute("x", x + 15);
      text.setAttribute("y", y + 9);
    }
    if (mark === "dot") pen.dot(x + 5, y + 5, 5, look);
    else if (mark === "line") pen.line(x, y + 5, x + 11, y + 5, look);
    else pen.rect(x, y, 10, 10, look, 2);
    x += width + 16;
  }
}
