// 18: two balls on a slope that ends at a wall, one with its gradients clipped.

const GENTLE = 0.06; // curvature of the slope
const FOOT = 7; // its lowest point
const WALL = { at: 8, height: 4, width: 0.06 };
const STEPS = 60;

const wall = (w) => 1 / (1 + Math.exp(-(w - WALL.at) / WALL.width));
const loss = (w) => 0.1 + (GENTLE / 2) * (w - FOOT) ** 2 + WALL.height * wall(w);

function gradient(w) {
  const part = wall(w);
  return GENTLE * (w - FOOT) + (WALL.height * part * (1 - part)) / WALL.width;
}

// Places of the ball before each of `STEPS` steps, and behind the last.
// `clip`: the largest norm of a gradient; null: any.
function walk({ start, rate, noise, seed }, clip) {
  const next = uniform(seed);
  const places = [start];
  for (let step = 0; step < STEPS; step++) {
    const w = places[step];
    let slope = gradient(w) + noise * normal(next);
    if (clip !== null) slope *= Math.min(1, clip / Math.abs(slope));
    places.push(w - rate * slope);
  }
  return places;
}

// ---------------------------------------------------------------- drawing

const [LEFT, RIGHT] = [-10, 10];
const TOP = 9; // highest loss on the hill
const BALLS = [["red", "not clipped"], ["blue", "clipped"]];
const RATES = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3];
const NORMS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];
const STARTS = steps(-4, 8.4, 0.1);
const both = (state) => [walk(state, null), walk(state, state.clip)];

function hill({ left, right, top, bottom }) {
  return { x: linear(LEFT, RIGHT, left, right), y: linear(-0.4, TOP, bottom, top) };
}

function drawHill(pen, area) {
  const { x, y } = hill(area);
  const curve = steps(LEFT, RIGHT, 0.04).map((w) => [x(w), y(Math.min(TOP, loss(w)))]);
  const floor = [[area.right, area.bottom], [area.left, area.bottom]];
  pen.path([...curve, ...floor], "fill pale");
  pen.path(curve, "line grey");
  pen.text(area.left + 4, area.top + 2, "loss", "small faint");
  pen.text(area.right, area.bottom + 16, "one weight", "small faint end");
}

// The ball after so many steps, where it has been, and its latest step.
function drawBall(pen, area, places, now, hue, lift) {
  const { x, y } = hill(area);
  const spot = (w) => [x(w), y(Math.min(TOP, loss(w))) - lift];
  places.slice(0, now).forEach((w) => {
    if (w >= LEFT && w <= RIGHT) pen.dot(...spot(w), 3, `fill ${hue} half`);
  });
  const w = places[now];
  if (now && Math.abs(w - places[now - 1]) > 0.8) {
    const [from, to] = [spot(clamp(places[now - 1], LEFT, RIGHT)), spot(clamp(w, LEFT, RIGHT))];
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const short = (i) => to[i] - (10 / length) * (to[i] - from[i]); // in front of the ball
    pen.arrow(...from, short(0), short(1), hue);
  }
  if (w >= LEFT && w <= RIGHT) {
    pen.dot(...spot(w), 8, `fill ${hue}`);
    return;
  }
  const [side, look] = w < LEFT ? [area.left + 6, ""] : [area.right - 6, "end"];
  const arrow = w < LEFT ? "◀" : "▶";
  const words = `${arrow} thrown to ${w.toFixed(0)}`;
  pen.text(side, area.top + 40 + 2 * lift, words, `bold ${hue} ${look}`);
}

function drawLosses(pen, walks, now, { left, right, top, bottom }) {
  const x = linear(0, STEPS, left, right);
  const most = Math.max(10, ...walks.flat().map(loss)) * 1.3;
  const y = logarithmic(0.08, most, bottom, top);
  const marks = [0.1, 1, 10, 100, 1000, 10000].filter((value) => value < most);
  pen.text(left, top - 10, "loss after each step", "small faint");
  rows(pen, marks, y, left, right, (value) => value.toLocaleString("en"));
  columns(pen, steps(0, STEPS, 20), x, bottom);
  pen.text(right, bottom + 33, "steps", "small faint end");
  walks.forEach((places, i) => {
    const points = places.map((w, step) => [x(step), y(clamp(loss(w), 0.08, most))]);
    pen.path(points, `line ${BALLS[i][0]} soft`);
    pen.path(points.slice(0, now + 1), `line ${BALLS[i][0]}`);
    pen.dot(...points[now], 5, `fill ${BALLS[i][0]}`);
  });
}

function places({ width, narrow }) {
  if (narrow) {
    return {
      hill: { left: 4, right: width - 4, top: 14, bottom: 230 },
      losses: { left: 46, right: width - 8, top: 294, bottom: 400 },
    };
  }
  const split = Math.round(width * 0.63);
  return {
    hill: { left: 4, right: split, top: 14, bottom: 264 },
    losses: { left: split + 62, right: width - 8, top: 28, bottom: 264 },
  };
}

function inWords(state) {
  const [free, clipped] = both(state);
  const furthest = Math.min(...free.map((w, i) => (i ? w - free[i - 1] : 0)));
  const short = (value) => Number(value.toPrecision(2));
  const highest = [free, clipped].map((all) => short(Math.max(...all.map(loss))));
  const last = [free, clipped].map((all) => short(loss(all[STEPS])));
  const ends = `After ${STEPS} steps the loss is ${last[0]} without clipping, ${last[1]} with it.`;
  if (furthest > -3) return `The unclipped ball was not thrown. ${ends}`;
  return (
    `One step throws the unclipped ball ${Math.round(-furthest)} back: its loss rises to ` +
    `${highest[0]}. Clipped, no step is longer than ${short(state.rate * state.clip)}, and the ` +
    `loss stays below ${short(highest[1] + 0.1)}. ${ends}`
  );
}

function render({ el }) {
  const state = { rate: 1, clip: 1, noise: 0.4, start: 1, step: 44, seed: 3 };
  let grip;
  const frame = new Frame(el, {
    name: "loss-cliff",
    ask: "What does one step from a cliff do, and what does clipping change?",
    task: "Press Play. Then lower the clipping norm: when is it too small? Drag the orange start.",
    caption:
      "Simulated in one dimension: one weight on a made-up loss, a gentle slope that ends at a " +
      "wall. Each step of " +
      "SGD is −(learning rate) × (gradient + noise of the batch); " +
      "both balls meet the same noise. " +
      "Clipping shortens a gradient that is longer than the norm, and leaves its direction, " +
      "here only a sign. A real network has such walls in very many dimensions. " +
      "Nothing here is measured; the panel below trains a real network.",
    state,
    height: (width) => (width < NARROW ? 440 : 300),
    draw: (pen, now, size) => {
      const area = places(size);
      const walks = both(now);
      drawHill(pen, area.hill);
      walks.forEach((each, i) => drawBall(pen, area.hill, each, now.step, BALLS[i][0], 9));
      drawLosses(pen, walks, now.step, area.losses);
      const { left, right, bottom } = area.hill;
      const entries = BALLS.map(([hue, words]) => [`fill ${hue}`, words, "dot"]);
      legend(pen, entries, { left: left + 5, right, top: bottom + 8 });
      const { x, y } = hill(area.hill);
      const low = y(Math.min(TOP, loss(now.start))) + 16;
      grip?.(x(now.start), low);
      pen.text(x(now.start) - 16, low + 4, "start", "small bold end");
      return inWords(now);
    },
  });
  frame.slider({ name: "rate", label: "learning rate", values: RATES });
  frame.slider({ name: "clip", label: "clipping norm", values: NORMS });
  frame.slider({ name: "noise", label: "noise of a batch", values: steps(0, 1, 0.1) });
  frame.slider({ name: "step", label: "step", values: steps(0, STEPS, 1) });
  frame.player({ name: "step", values: steps(0, STEPS, 1), seconds: 8 });
  frame.button({
    name: "again",
    text: () => "Other noise",
    press: () => frame.set({ seed: state.seed + 1 }),
  });
  grip = frame.grip({
    name: "start",
    label: "where the balls start",
    look: "orange",
    values: STARTS,
    from: (x) => hill(places(frame.size()).hill).x.back(x),
  });
  return () => frame.close();
}

export { loss, gradient, walk };
export default { render };
