// 03: the learning rate over a training run, bent by six grips, and the loss that comes of it.
// Its model and words: models/bend_the_rate.js.

const [LEAST, MOST] = [0.0003, 20]; // of the losses that are drawn
// The three schedules of a bet, drawn together.
const HUES = { rise: "sky", fall: "green", cycle: "purple" };
const SECONDS = 3; // that they take to be drawn
const across = steps(0, STEPS - 1, 1);
const atGrip = (i) => (i * (STEPS - 1)) / (GRIPS - 1);

function places({ width, narrow }) {
  const right = narrow ? width - 10 : Math.round(width * 0.68);
  return {
    rate: { left: 46, right, top: 24, bottom: 164 },
    loss: { left: 46, right, top: 206, bottom: 356 },
    list: { left: narrow ? 10 : right + 36, right: width - 8, top: narrow ? 414 : 24 },
  };
}

// A grip at the edge hides no number.
const stepsOf = ({ left, right }) => linear(0, STEPS - 1, left + 12, right - 12);
const ratesOf = ({ top, bottom }) => logarithmic(RATES[0], 3, bottom, top);

function drawRate(pen, area, now) {
  const [{ shape, start }, grips] = [now, gripsOf(now)];
  const [x, y] = [stepsOf(area), ratesOf(area)];
  pen.text(area.left, area.top - 10, "learning rate of each step", "small faint");
  rows(pen, [0.01, 0.1, 1], y, area.left, area.right);
  const limit = across.map((step) => [x(step), y(2 / curvatures(start, step)[0])]);
  pen.path(limit, "line red thin dash");
  pen.text(area.right, y(2) - 5, "above this the loss grows", "small red end");
  const line = (each) => rates(each).map((rate, step) => [x(step), y(rate)]);
  if (shape === "constant") drawOutline(pen, line(tuned("cycle", start)));
  if (!compares(now)) return pen.path(line(grips), "line blue");
  for (const [half, hue] of Object.entries(HUES)) {
    pen.path(line(tuned(half, start)), `line ${hue}${half === shape ? " thick" : ""}`);
  }
}

// What the question is about, before it is chosen.
function drawOutline(pen, line) {
  pen.path(line, "line grey dash");
  const at = (part) => line[Math.round(part * (STEPS - 1))];
  pen.text(at(0)[0] + 2, at(0)[1] + 18, "1cycle: its rise ...", "small faint");
  pen.text(at(0.84)[0] - 8, at(0.84)[1] + 32, "... and its fall", "small faint end");
}

function drawLoss(pen, area, now) {
  const [{ start }, grips] = [now, gripsOf(now)];
  const [x, y] = [stepsOf(area), logarithmic(LEAST, MOST, area.bottom, area.top)];
  const line = (values) => values.map((loss, i) => [x(i), y(clamp(loss, LEAST, MOST))]);
  const title = compares(now) ? "loss: the mean of all runs" : "loss: mean, and three runs";
  pen.text(area.left, area.top - 10, title, "small faint");
  rows(pen, [0.001, 0.01, 0.1, 1, 10], y, area.left, area.right);
  columns(pen, [0, 50, 100, 150], x, area.bottom);
  pen.text(area.right, area.bottom + 17, "steps", "small faint end");
  if (compares(now)) return drawHalves(pen, now, line);
  const found = losses(grips, start);
  for (const seed of SEEDS) {
    const run = smooth(walk(grips, start, seed)).slice(0, found.length);
    pen.path(line(run), "line sky thin half");
  }
  pen.path(line(found), "line blue thick");
  const [[px, py], lost] = [line(found).at(-1), found.at(-1) === Infinity];
  pen.dot(px, py, 6, `fill ${lost ? "red" : "blue"}`);
  if (lost) pen.text(px + 12, py + 5, `lost at step ${found.length}`, "bold red");
}

// The losses of the three schedules of a bet, as far as they are played.
function drawHalves(pen, { start, shape, part }, line) {
  for (const [half, hue] of Object.entries(HUES)) {
    const points = line(losses(tuned(half, start), start).slice(0, 1 + part * (STEPS - 1)));
    pen.path(points, `line ${hue}${half === shape ? " thick" : ""}`);
    pen.dot(...points.at(-1), half === shape ? 6 : 4, `fill ${hue}`);
  }
}

// Which curve is which, while they are drawn.
function drawNames(pen, { left, right, top }) {
  pen.text(left, top - 10, "each at its best highest rate", "small faint");
  Object.entries(HUES).forEach(([half, hue], i) => {
    pen.text(left, top + 30 * i + 11, NAMES[half], "small bold");
    pen.rect(left, top + 30 * i + 16, right - left, 5, `fill ${hue}`, 2);
  });
}

// What was tried on this start, the lowest end first.
function drawList(pen, { left, right, top }, tried, now) {
  pen.text(left, top - 10, "final loss, lowest first", "small faint");
  const most = 0.1; // a longer bar is cut
  [...tried].sort(([, one], [, other]) => one - other).forEach(([shape, end], i) => {
    const y = top + 30 * i;
    const look = shape === now.shape ? "bold" : "";
    const hue = compares(now) && HUES[shape];
    const name = shape === "own" ? `${NAMES.own}, at best` : NAMES[shape];
    pen.text(left, y + 11, `${i || end === Infinity ? "" : "★ "}${name}`, `small ${look}`);
    pen.text(right, y + 11, short(end), `small end ${look}`);
    const width = (Math.min(end, most) / most) * (right - left);
    const other = shape === "own" ? "orange" : "blue";
    pen.rect(left, y + 16, width, 5, `fill ${hue || other}`, 2);
  });
}

// The schedules that are shown to their end, and their losses there.
function ended(now) {
  if (!compares(now)) return [[now.shape, ending(gripsOf(now), now.start)]];
  if (now.part < 1) return [];
  return Object.keys(HUES).map((half) => [half, ending(tuned(half, now.start), now.start)]);
}

// How many schedules the list has now.
function listed(tried, now) {
  const shown = compares(now) ? Object.keys(HUES) : [now.shape];
  return new Set([...tried[now.start].keys(), ...shown]).size;
}

// Another start is another question: its picture opens as the first one did.
function askAgain(frame) {
  const asked = (event) => {
    if (!event.target.matches(".xp-start-calm, .xp-start-steep")) return;
    if (!frame.wagers.querySelector("[aria-pressed=true]")) return;
    frame.reopen();
    Object.assign(frame.state, { shape: "constant", part: 1 });
  };
  frame.controls.addEventListener("change", asked, true);
}

function render({ el }) {
  const state = { ...OPENS };
  // What the controls show follows from the schedule.
  for (let i = 0; i < GRIPS; i++) {
    Object.defineProperty(state, `grip${i}`, { get: () => gripsOf(state)[i] });
  }
  Object.defineProperty(state, "peak", { get: () => Math.max(...gripsOf(state)) });
  const tried = { calm: new Map(), steep: new Map() };
  const puts = [];
  const frame = new Frame(el, {
    name: "bend-the-rate",
    ask: "Which half of 1cycle does the work, its rise or its fall?",
    task:
      "1cycle, dashed, raises the learning rate, then lowers it. Bet; then choose a schedule, or " +
      "bend one: drag its grips.",
    caption:
      "Simulated: SGD with noisy gradients on two weights, one with a steep loss, one 50 times " +
      "flatter. A steep start is 8 times steeper for 20 steps; above a loss of 100 all is lost. " +
      "The mean is exact, over all noises; a run is drawn as the mean of its latest 10 steps. Each " +
      "schedule of the menu has the highest rate that ends lowest. Nothing is measured here; the " +
      "panel below trains a real network.",
    state,
    height: (width) => (width < NARROW ? 420 + 30 * listed(tried, state) : 380),
    draw: (pen, now, size) => {
      const [area, grips] = [places(size), gripsOf(now)];
      const end = ending(grips, now.start);
      const here = tried[now.start];
      for (const [shape, loss] of ended(now)) {
        here.set(shape, Math.min(loss, here.get(shape) ?? loss));
      }
      drawRate(pen, area.rate, now);
      drawLoss(pen, area.loss, now);
      if (compares(now) && now.part < 1) drawNames(pen, area.list);
      else drawList(pen, area.list, here, now);
      const [x, y] = [stepsOf(area.rate), ratesOf(area.rate)];
      puts.forEach((put, i) => put(x(atGrip(i)), y(grips[i])));
      return inWords(now, end, grips);
    },
  });
  const plays = (value) => {
    const shape = value === "both" ? "cycle" : value;
    return { shape, part: 1, compared: `${shape} ${state.start}` };
  };
  frame.bet({
    options: [["rise", "the rise"], ["fall", "the fall"], ["both", "only both together"]],
    answer,
    play: plays,
    film: { name: "part", values: steps(0, 1, 1 / 90), seconds: SECONDS },
  });
  frame.menu({ name: "shape", label: "schedule", options: Object.entries(NAMES) });
  const bend = (own) => frame.set({ shape: "own", own });
  frame.slider({
    name: "peak",
    label: "highest rate",
    values: RATES,
    change: (peak) =>
      bend(gripsOf(state).map((rate) => clamp((rate * peak) / state.peak, RATES[0], 3))),
  });
  frame.choice({ name: "start", label: "start", options: [["calm", "calm"], ["steep", "steep"]] });
  askAgain(frame);
  for (let i = 0; i < GRIPS; i++) {
    puts[i] = frame.grip({
      name: `grip${i}`,
      label: `learning rate at step ${Math.round(atGrip(i))}`,
      values: RATES,
      from: (x, y) => ratesOf(places(frame.size()).rate).back(y),
      change: (rate) => bend(gripsOf(state).map((other, at) => (at === i ? rate : other))),
    });
  }
  return () => frame.close();
}

export { RATES, SHAPES, SEEDS, OPENS, ending, rates, losses, walk, tuned, smooth, compares, answer };
export default { render };
