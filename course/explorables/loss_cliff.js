// 18: two balls on a slope that ends at a wall, one with its gradients clipped.
// Its model: models/loss_cliff.js.

const [LEFT, RIGHT] = [-10, 10];
const TOP = 9; // highest loss on the hill
const BALLS = [["red", "not clipped"], ["blue", "clipped"]];
const HIGH = 10; // the scale of losses has room for this one, and for all that are seen
const RATES = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3];
const STARTS = steps(-4, 8.4, 0.1);
const both = (state) => [walk(state, null), walk(state, state.clip)];

function hill({ left, right, top, bottom }) {
  return { x: linear(LEFT, RIGHT, left, right), y: linear(-0.4, TOP, bottom, top) };
}

function drawHill(pen, area) {
  const { x, y } = hill(area);
  rows(pen, steps(0, 8, 2), y, area.left, area.right);
  columns(pen, steps(LEFT, RIGHT, 5), x, area.bottom);
  const curve = steps(LEFT, RIGHT, 0.04).map((w) => [x(w), y(Math.min(TOP, loss(w)))]);
  const floor = [[area.right, area.bottom], [area.left, area.bottom]];
  pen.path([...curve, ...floor], "fill pale");
  pen.path(curve, "line grey");
  pen.text(area.left, area.top - 10, "loss", "small faint");
  pen.text(area.right, area.bottom + 33, "the weight", "small faint end");
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
    // Where both are at one place, red is seen around blue.
    pen.dot(...spot(w), hue === "red" ? 10 : 7, `fill ${hue}`);
    return;
  }
  const [side, look] = w < LEFT ? [area.left + 6, ""] : [area.right - 6, "end"];
  const arrow = w < LEFT ? "◀" : "▶";
  const words = `${arrow} thrown to ${w.toFixed(0)}`.replace("-", "−");
  pen.text(side, area.top + 40 + 2 * lift, words, `bold ${hue} ${look}`);
}

// Only what has happened by now: the rest is the reader's to find out.
function drawLosses(pen, walks, now, { left, right, top, bottom }) {
  const x = linear(0, STEPS, left, right);
  const seen = walks.map((places) => places.slice(0, now + 1).map(loss));
  const most = Math.max(HIGH, ...seen.flat()) * 1.3;
  const y = logarithmic(0.08, most, bottom, top);
  const marks = [0.1, 1, 10, 100, 1000, 10000].filter((value) => value < most);
  pen.text(left, top - 10, "loss after each step", "small faint");
  rows(pen, marks, y, left, right, (value) => value.toLocaleString("en"));
  columns(pen, steps(0, STEPS, 20), x, bottom);
  pen.text(right, bottom + 33, "steps", "small faint end");
  if (!now) pen.text((left + right) / 2, top + 50, "? who ends lower ?", "bold middle faint");
  seen.forEach((losses, i) => {
    const [hue] = BALLS[i];
    const points = losses.map((value, step) => [x(step), y(clamp(value, 0.08, most))]);
    pen.path(points, `line ${hue}`);
    const event = thrown(walks[i], now);
    if (event) burst(pen, points[event.step], hue);
    pen.dot(...points[now], hue === "red" ? 6 : 4, `fill ${hue}`);
  });
}

// A star of eight rays.
function burst(pen, [x, y], hue) {
  for (let ray = 0; ray < 8; ray++) {
    const [dx, dy] = [Math.cos((ray * Math.PI) / 4), Math.sin((ray * Math.PI) / 4)];
    pen.line(x + 5 * dx, y + 5 * dy, x + 11 * dx, y + 11 * dy, hue);
  }
}

function places({ width, narrow }) {
  if (narrow) {
    return {
      hill: { left: 24, right: width - 16, top: 28, bottom: 230 },
      losses: { left: 46, right: width - 16, top: 310, bottom: 416 },
    };
  }
  const split = Math.round(width * 0.63);
  return {
    hill: { left: 24, right: split, top: 28, bottom: 264 },
    losses: { left: split + 62, right: width - 8, top: 28, bottom: 264 },
  };
}

function inWords(state) {
  const walks = both(state);
  const now = walks.map((all) => short(loss(all[state.step])));
  const losses = `the loss is ${now[0]} unclipped, ${now[1]} clipped.`;
  if (state.step === 0) {
    const longest = short(state.rate * state.clip);
    return `No step of the clipped ball will be longer than ${longest}. Bet, or press Play.`;
  }
  if (state.step < STEPS) return `${throws(walks, state.step)}After step ${state.step} ${losses}`;
  return `${throws(walks, STEPS)}${spikes(walks[1])}After ${STEPS} steps ${losses} ${verdict(state)}`;
}

const short = (value) => Number(value.toPrecision(3));

function throws(walks, now) {
  const [free, clipped] = walks.map((places) => thrown(places, now));
  if (!free) return "";
  const also = clipped ? `, the clipped one by ${Math.round(clipped.length)}` : "";
  const far = Math.round(free.length);
  return `Step ${free.step} throws the ball that is not clipped by ${far} units${also}. `;
}

// What the peaks of the blue curve are, where it is not thrown.
function spikes(places) {
  const count = thrown(places, STEPS) ? 0 : climbs(places, STEPS);
  return count ? `Blue spikes: ${count} ${count > 1 ? "steps" : "step"} onto the wall. ` : "";
}

function verdict(state) {
  const best = lowest(state, NORMS);
  if (best.includes(state.clip)) return "No threshold of the slider ends lower.";
  if (answer(state).includes(state.clip)) {
    return `The best of the four; on the slider, ${best[0]} ends a little lower.`;
  }
  return `A ${state.clip < best[0] ? "larger" : "smaller"} threshold ends lower.`;
}

function render({ el }) {
  const state = { ...OPENS };
  let grip;
  const frame = new Frame(el, {
    name: "loss-cliff",
    ask: "Which threshold brings the clipped ball lowest in 60 steps?",
    task:
      "Bet, and both balls walk down to a wall. Then move the threshold, or the purple start " +
      "below the slope.",
    caption:
      "Simulated in one dimension: one weight on a made-up loss, a gentle slope that ends at a " +
      "wall. Each step of " +
      "SGD is −(learning rate) × (gradient + noise of the batch); " +
      "both balls meet the same noise. " +
      "Clipping shortens a gradient to the threshold if it is longer, and leaves its direction, " +
      "here only a sign. A real network has such walls in very many dimensions. " +
      "Nothing here is measured; the panel below trains a real network.",
    state,
    height: (width) => (width < NARROW ? 456 : 304),
    draw: (pen, now, size) => {
      const area = places(size);
      const walks = both(now);
      drawHill(pen, area.hill);
      walks.forEach((each, i) => drawBall(pen, area.hill, each, now.step, BALLS[i][0], 9));
      drawLosses(pen, walks, now.step, area.losses);
      const { left, right, bottom } = area.hill;
      const entries = BALLS.map(([hue, words]) => [`fill ${hue}`, words, "dot"]);
      legend(pen, entries, { left, right: right - 80, top: bottom + 24 });
      const { x, y } = hill(area.hill);
      const low = y(Math.min(TOP, loss(now.start))) + 16;
      grip?.(x(now.start), low);
      pen.text(x(now.start) - 16, low + 4, "start", "small bold end");
      return inWords(now);
    },
  });
  const film = { name: "step", values: steps(0, STEPS, 1), seconds: 6 };
  frame.bet({
    name: "clip",
    options: BETS.map((norm) => [norm, String(norm)]),
    answer,
    play: (clip) => ({ clip, step: STEPS }),
    film,
  });
  frame.slider({ name: "clip", label: "threshold", values: NORMS });
  frame.slider({ name: "rate", label: "learning rate", values: RATES });
  frame.slider({ name: "noise", label: "noise of a batch", values: steps(0, 1, 0.1) });
  frame.slider({ name: "step", label: "step", values: steps(0, STEPS, 1) });
  frame.player(film);
  frame.button({
    name: "again",
    text: () => "Other noise",
    press: () => frame.set({ seed: nextNoise(state) }),
  });
  grip = frame.grip({
    name: "start",
    label: "where the balls start",
    look: "purple",
    values: STARTS,
    from: (x) => hill(places(frame.size()).hill).x.back(x),
  });
  return () => frame.close();
}

export { loss, gradient, walk, thrown, climbs, answer, nextNoise, BETS, NORMS, OPENS };
export default { render };
