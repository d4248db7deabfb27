// 08: three optimizers in a ravine that can be turned; models/turn_the_ravine.js drawn.

const NAMES = { sgd: "SGD", momentum: "momentum", adam: "Adam" };
const HUES = { sgd: "red", momentum: "blue", adam: "orange" };
const [LEFT, RIGHT, LOW, HIGH] = [-9.4, 5.4, -6.6, 4.4]; // of the map
const LEVELS = [0.03, 0.2, 0.7, 1.8, 4, 8, 14];
const ANGLES = steps(0, 45, 1);
const STEEPS = [10, 30, 100, 300, 1000, 3000];
const SIZES = [0.001, 0.01, 0.1, 1, 10, 100, 1000];
const COMMON = [0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 1.5, 3];
const short = (value) => String(Number(value.toPrecision(2)));
const count = (arrives) => (arrives === Infinity ? "never" : `${arrives} steps`);

function places({ width, narrow }) {
  const map = { left: 2, right: narrow ? width - 2 : Math.round(width * 0.58), top: 4 };
  map.scale = (map.right - map.left) / (RIGHT - LEFT);
  map.bottom = map.top + (HIGH - LOW) * map.scale;
  const left = narrow ? 4 : map.right + 28;
  const top = narrow ? map.bottom + 26 : 22;
  const chart = { left: left + 40, right: width - 10, top: top + 124 };
  chart.bottom = narrow ? chart.top + 120 : map.bottom - 40;
  return { map, bars: { left, right: width - 8, top }, chart };
}

const toMap = ({ left, top, scale }) => ([x, y]) =>
  [left + (x - LEFT) * scale, top + (HIGH - y) * scale];
const inside = ([x, y], edge = 0) =>
  x > LEFT + edge && x < RIGHT - edge && y > LOW + edge && y < HIGH - edge;

// A curve without what leaves the map.
function within(pen, area, curve, look) {
  let part = [];
  for (const place of [...curve, [Infinity, 0]]) {
    if (inside(place)) part.push(toMap(area)(place));
    else {
      if (part.length > 1) pen.path(part, look);
      part = [];
    }
  }
}

// Lines of equal loss, the two weights' axes, the goal.
function drawRavine(pen, area, { angle, steep }) {
  const at = toMap(area);
  const frame = [[LEFT, LOW], [RIGHT, LOW], [RIGHT, HIGH], [LEFT, HIGH], [LEFT, LOW]];
  pen.path(frame.map(at), "line hair");
  for (const level of LEVELS) {
    const far = Math.min(14, Math.sqrt(2 * level * steep));
    const row = steps(-1, 1, 0.01).map((part) => far * Math.sin((Math.PI / 2) * part));
    for (const side of [1, -1]) {
      const up = (along) => side * Math.sqrt(Math.max(0, 2 * level - along ** 2 / steep));
      within(pen, area, row.map((along) => turned([along, up(along)], angle)), "line grey thin half");
    }
  }
  pen.line(...at([LEFT, 0]), ...at([RIGHT, 0]), "hair dash");
  pen.line(...at([0, LOW]), ...at([0, HIGH]), "hair dash");
  const [[right, middle], [center, top]] = [at([RIGHT, 0]), at([0, HIGH])];
  pen.text(right - 6, middle - 6, "weight 1", "small faint end");
  pen.text(center + 6, top + 16, "weight 2", "small faint");
  pen.dot(...at([0, 0]), GOAL * area.scale, "fill green");
}

function drawWalk(pen, area, { rule, path, arrives }, clock) {
  const shown = path.slice(0, Math.min(clock, arrives) + 1);
  within(pen, area, shown, `line ${HUES[rule]}`);
  const now = shown.at(-1);
  if (inside(now, 0.2)) pen.dot(...toMap(area)(now), 6, `fill ${HUES[rule]}`);
}

// A bar for each: its steps so far.
function drawBars(pen, { left, right, top }, walks, clock) {
  const x = linear(0, STEPS, left, right);
  pen.text(left, top - 8, `steps to the goal, at most ${STEPS}`, "small faint");
  walks.forEach(({ rule, rate, arrives }, i) => {
    const y = top + 32 * i;
    const done = clock >= Math.min(arrives, STEPS);
    const said = done ? count(arrives) : `step ${clock}`;
    pen.text(left, y + 12, `${NAMES[rule]}: ${said}`, `small ${HUES[rule]}${done ? " bold" : ""}`);
    pen.text(right, y + 12, `rate ${short(rate)}`, "small faint end");
    const end = x(Math.min(clock, arrives));
    pen.rect(left, y + 17, end - left, 6, `fill ${HUES[rule]}`, 2);
  });
}

// The steps at each angle where the reader has been.
function drawTrail(pen, area, seen, angle) {
  const x = linear(0, 45, area.left, area.right);
  const y = linear(0, STEPS, area.bottom, area.top + 16);
  rows(pen, [0, 100, 200, 300], y, area.left, area.right);
  pen.text(area.left - 9, area.top + 3, "never", "small faint end");
  columns(pen, [0, 15, 30, 45], x, area.bottom, (each) => `${each}°`);
  pen.line(x(angle), area.top - 4, x(angle), area.bottom, "grey dash");
  for (const [at, all] of seen) {
    RULES.forEach((rule, i) => {
      const up = all[i] === Infinity ? area.top - 2 : y(all[i]);
      // Where two are equal, each is seen around the next.
      pen.dot(x(at), up, (at === angle ? 6 : 4) - 1.2 * i, `fill ${HUES[rule]}`);
    });
  }
  pen.text(area.right, area.bottom + 33, "angle of the ravine", "small faint end");
}

function inWords(walks, { angle, clock, rate }, seen) {
  if (clock < STEPS) return `After ${clock} steps.`;
  const parts = walks.map(({ rule, arrives }) => `${NAMES[rule]} ${count(arrives)}`);
  const here = `At ${angle}°${rate ? `, all at a rate of ${rate}` : ""}: ${parts.join(", ")}.`;
  const straight = seen.get(0);
  if (!angle || !straight) return here;
  const before = straight.map((arrives, i) => [RULES[i], arrives, walks[i].arrives]);
  const changed = before.filter(([, old, now]) => now > MORE * old || now < old / MORE);
  if (!changed.length) return `${here} The angle changes little.`;
  const was = changed.map(([rule, old]) => `${NAMES[rule]} ${count(old)}`);
  const why = "Adam scales weight by weight; aslant, both weights have the same slopes.";
  return `${here} At 0°: ${was.join(", ")}. ${changed.some(([rule]) => rule === "adam") ? why : ""}`;
}

function render({ el }) {
  const state = { ...OPENS };
  const trails = new Map();
  let put = () => {};
  const frame = new Frame(el, {
    name: "turn-the-ravine",
    ask: "Turn the ravine by 45°: who then needs more steps, SGD, momentum or Adam?",
    task:
      "SGD follows the slope. Momentum adds most of its last step. Adam divides the step of each " +
      "weight by the size of that weight's slopes. Drag the start: the ravine turns with it.",
    caption:
      "Simulated: the loss is size × (along² / steepness + across²) / 2, in directions along and " +
      "across the ravine, without noise. A rule has arrived when it stays in the green goal. Each " +
      "has the best of 161 learning rates, as long as you set none for all. Nothing is measured " +
      "here; the panel below trains a real network.",
    state,
    height: (width) => {
      const { map, chart } = places({ width, narrow: width < NARROW });
      return Math.max(map.bottom, chart.bottom + 36) + 6;
    },
    draw: (pen, now, size) => {
      const area = places(size);
      const walks = RULES.map((rule) => {
        const rate = rateOf(rule, now);
        const path = walk(rule, rate, now);
        return { rule, rate, path, arrives: arrival(path) };
      });
      const name = [now.steep, now.size, now.rate].join();
      if (!trails.has(name)) trails.set(name, new Map());
      const seen = trails.get(name);
      if (now.clock === STEPS) seen.set(now.angle, walks.map(({ arrives }) => arrives));
      drawRavine(pen, area.map, now);
      walks.forEach((each) => drawWalk(pen, area.map, each, now.clock));
      drawBars(pen, area.bars, walks, now.clock);
      drawTrail(pen, area.chart, seen, now.angle);
      put(...toMap(area.map)(turned(START, now.angle)));
      return inWords(walks, now, seen);
    },
  });
  const options = RULES.map((rule) => [rule, NAMES[rule]]);
  frame.bet({
    options: [...options, ["none", "none of them"]],
    answer,
    play: () => ({ angle: 45, clock: STEPS }),
  });
  const degrees = (angle) => `${angle}°`;
  frame.slider({ name: "angle", label: "angle", values: ANGLES, text: degrees });
  frame.slider({ name: "steep", label: "steepness", values: STEEPS });
  frame.slider({ name: "size", label: "size of the loss", values: SIZES });
  const told = (rate) => (rate ? `${rate} for all` : "best of each");
  frame.slider({ name: "rate", label: "learning rate", values: COMMON, text: told });
  frame.player({ name: "clock", values: steps(0, STEPS, 1), seconds: 6 });
  put = frame.grip({
    name: "angle",
    label: "angle of the ravine",
    values: ANGLES,
    text: degrees,
    change: (angle) => frame.set({ angle, clock: STEPS }),
    from: (x, y) => {
      const { left, top, scale } = places(frame.size()).map;
      const [across, up] = [(x - left) / scale + LEFT, HIGH - (y - top) / scale];
      const straight = Math.atan2(START[1], START[0]);
      const turn = Math.atan2(up, across) - straight;
      const full = 2 * Math.PI;
      return (((turn + full + Math.PI) % full - Math.PI) * 180) / Math.PI;
    },
  });
  return () => frame.close();
}

export { OPENS, RATES, RULES, turned, gradient, walk, arrival, tuned, needed, answer };
export default { render };
