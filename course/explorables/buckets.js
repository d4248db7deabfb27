// 14: gradients leave in buckets while the backward pass goes on; cut so that all is done first.

const TIMES = steps(0, 1, 0.004);
const BARS = { top: 40, height: 96 }; // pixels
const LINK = { top: BARS.top + BARS.height + 44, height: 32 };
const AXIS = LINK.top + LINK.height;
const ROW = 18;
const PHONE = 480; // pixels, below which the ring stands under the table
const RADIUS = 70;

function places({ width, narrow }) {
  if (narrow) {
    const [right, top] = [width - 8, AXIS + 92];
    const below = width < PHONE;
    return {
      lanes: { left: 8, right },
      board: { left: 8, right: below ? right : 270, top },
      ring: below ? { x: width / 2, y: top + 190 } : { x: width - 130, y: top + 62 },
    };
  }
  const split = Math.round(width * 0.7);
  return {
    lanes: { left: 8, right: split },
    board: { left: split + 34, right: width - 8, top: 12 },
    ring: { x: Math.round((split + 34 + width) / 2) - 8, y: AXIS - 6 },
  };
}

function heightOf(width) {
  if (width >= NARROW) return AXIS + 74;
  return AXIS + (width < PHONE ? 364 : 232);
}

// Across the lanes: as long as one bucket takes, or the plan.
function across(state, cuts, { left, right }) {
  const longest = Math.max(endOf(state, []), endOf(state, cuts));
  return linear(0, 1.02 * longest, left, right);
}

// The backward pass, layer by layer: as wide as its time, as high as the root of its bytes.
function drawLayers(pen, state, cuts, area, x, now) {
  const bottom = BARS.top + BARS.height;
  const y = linear(0, Math.sqrt(60), bottom, BARS.top);
  pen.text(area.left, 12, "backward pass: gradients in MiB, last layer first", "small faint");
  const ready = readyTimes(state);
  ORDER.forEach(([mib], i) => {
    const [from, to] = [x(i ? ready[i - 1] : 0), x(ready[i])];
    const look = to > x(now) + 0.1 ? "fill edge" : "fill blue";
    const top = Math.min(y(Math.sqrt(mib)), bottom - 3);
    pen.rect(from + 1, top, to - from - 2, bottom - top, look, 2);
    const word = String(mib);
    const room = to - from > 6 * word.length + 1;
    if (room) pen.text((from + to) / 2, top - 5, word, "small faint middle");
  });
  const bounds = [0, ...cuts, ORDER.length];
  bounds.slice(1).forEach((end, i) => {
    const [from, to] = [x(bounds[i] ? ready[bounds[i] - 1] : 0), x(ready[end - 1])];
    pen.line(from + 2, bottom + 8, to - 2, bottom + 8, "orange");
    if (end < ORDER.length) pen.rect(to - 1.5, BARS.top - 6, 3, BARS.height + 14, "fill", 1.5);
  });
}

// What the link does: nobody computes where it is red.
function drawLink(pen, state, buckets, area, x, now) {
  const last = readyTimes(state)[ORDER.length - 1];
  const words = area.right < PHONE ? "link" : "link to the other machines";
  pen.text(area.right, LINK.top - 8, words, "small faint end");
  pen.rect(area.left, LINK.top, area.right - area.left, LINK.height, "fill pale", 3);
  buckets.forEach((bucket, i) => {
    const part = (from, to, hue) => {
      const [left, right] = [Math.min(from, now), Math.min(to, now)].map(x);
      const wide = Math.max(1, right - left - 1);
      if (right > left) pen.rect(left, LINK.top, wide, LINK.height, hue, 2);
    };
    part(bucket.begin, Math.min(bucket.done, last), "fill orange");
    part(Math.max(bucket.begin, last), bucket.done, "fill red");
    const middle = (bucket.begin + bucket.done) / 2;
    if (x(bucket.done) - x(bucket.begin) > 18 && now >= bucket.done) {
      pen.text(x(middle), LINK.top + 20, i + 1, "on bold middle");
    }
    // From the moment when all of it is ready to the moment when it leaves.
    const [from, to] = [x(bucket.ready), x(bucket.begin)];
    const top = BARS.top + BARS.height + 8;
    if (now >= bucket.begin) pen.line(from, top, to, LINK.top, "thin orange");
  });
  const most = x.back(area.right);
  columns(pen, ticks(0, most, area.right < 500 ? 4 : 6), x, AXIS, (time) => `${time} ms`);
}

function drawEnds(pen, state, cuts, area, x) {
  const last = readyTimes(state)[ORDER.length - 1];
  const end = endOf(state, cuts);
  pen.line(x(last), BARS.top - 8, x(last), AXIS, "blue dash");
  pen.line(x(end), LINK.top - 6, x(end), AXIS + 6, "red");
  const entries = [["fill blue", "computes"], ["fill orange", "exchanges meanwhile"]];
  entries.push(["fill red", "exchanges, all wait"]);
  entries.push(["blue dash", "end of the backward pass", "line"]);
  legend(pen, entries, { left: area.left, right: area.right, top: AXIS + 34 });
}

function drawBoard(pen, state, cuts, revealed, { left, right, top }) {
  pen.text(left, top, "where to cut", "small faint");
  pen.text(right, top, "exchanged after", "small faint end");
  const found = goals(state);
  const line = (number, name, value, look) => {
    pen.text(left, top + 4 + ROW * number, name, look);
    pen.text(right, top + 4 + ROW * number, value, `${look} end`);
  };
  const told = (known, end) => (known ? `${end.toFixed(1)} ms` : "?");
  Object.entries(PLANS).forEach(([name, { row }], i) => {
    line(i + 1, row, told(revealed, found[name]), "small");
  });
  line(4, "best of 2,048", told(state.known.includes(settingOf(state)), found.best), "small");
  const won = state.given.includes(settingOf(state)) || !revealed ? "" : medal(state, cuts);
  line(5, won ? `yours: ${won}` : "yours", told(revealed, endOf(state, cuts)), "small bold");
}

// The machines in a ring, and the pieces of the bucket that is on its way.
function drawRing(pen, state, buckets, { x, y }, now) {
  const { machines } = state;
  const place = (at, radius = RADIUS) => {
    const angle = (2 * Math.PI * at) / machines - Math.PI / 2;
    return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
  };
  const line = (words, below, bold) => pen.text(x, y + below, words, `small middle ${bold}`);
  const bucket = buckets.findIndex(({ begin, done }) => begin <= now && now < done);
  const size = machines > 32 ? 2.6 : machines > 8 ? 4 : 7;
  for (let i = 0; i < machines; i++) pen.dot(...place(i), size, "fill blue");
  if (bucket < 0) {
    const idle = now < readyTimes(state)[ORDER.length - 1] ? "link idle" : "all have all sums";
    line(buckets.length ? idle : "machines in a ring", 4, "faint");
    return;
  }
  const { begin, done } = buckets[bucket];
  const count = 2 * (machines - 1);
  const step = ((now - begin) / (done - begin)) * count;
  const adding = step < count / 2;
  for (let i = 0; i < machines; i++) {
    pen.dot(...place(i + (step % 1), RADIUS - size - 6), Math.max(2, size - 2), "fill orange");
  }
  line(`bucket ${bucket + 1}`, -8, "bold");
  line(adding ? "adds up pieces" : "hands on sums", 8, "");
  line(`${Math.floor(step) + 1} of ${count}`, 24, "faint");
}

// Buttons between the layers. The arrow keys move from one to the next.
function gates(frame, state, change) {
  const row = html("div", "gates", frame.stage);
  row.setAttribute("role", "group");
  frame.adopt(row, "cuts");
  const all = EVERY_LAYER.map((place) => {
    const gate = html("button", "gate", row);
    gate.type = "button";
    frame.adopt(gate, `cut after gradient ${place}`);
    gate.addEventListener("click", () => {
      const rest = state.cuts.filter((cut) => cut !== place);
      const more = [...state.cuts, place].sort((a, b) => a - b);
      change(rest.length < state.cuts.length ? rest : more);
    });
    return gate;
  });
  row.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    all[clamp(all.indexOf(event.target) + move, 0, all.length - 1)].focus();
    event.preventDefault();
  });
  return (x) => {
    const ready = readyTimes(state);
    all.forEach((gate, i) => {
      const room = Math.min(x(ready[i + 1]) - x(ready[i]), x(ready[i]) - x(i ? ready[i - 1] : 0));
      const place = { left: x(ready[i]), top: BARS.top + 26, height: BARS.height };
      const sizes = { ...place, width: clamp(2 * room, 7, 16) };
      for (const [side, size] of Object.entries(sizes)) gate.style[side] = `${size}px`;
      gate.style.marginLeft = `${-sizes.width / 2}px`;
      gate.setAttribute("aria-pressed", state.cuts.includes(i + 1));
    });
  };
}

function render({ el }) {
  const state = { ...OPENS };
  let place;
  const frame = new Frame(el, {
    name: "buckets",
    ask: "32 machines: where to cut, so that all gradients are exchanged earliest?",
    task:
      "A bucket leaves once its last gradient is ready and the link is free. " +
      "Click between two bars to cut, and beat all three.",
    caption:
      "Simulated: p machines with copies of one network of 12 layers and images of their own. In a " +
      "ring each sends 2 (p − 1) messages for a bucket, a p-th of it each: half of them add pieces " +
      "up, half hand the sums on. A message takes 5 µs at least by NVLink, 10 by PCIe, 20 by " +
      "Ethernet. Heights are square roots of MiB. One image each is the least, so that 16 servers " +
      "with 8 GPUs have a batch of 128 or more. Nothing here is measured; the panel measures.",
    state,
    height: heightOf,
    draw: (pen, now, size) => {
      const area = places(size);
      const x = across(now, now.cuts, area.lanes);
      const buckets = bucketsOf(now, now.cuts);
      const last = readyTimes(now)[ORDER.length - 1];
      const moment = size.revealed ? now.time * endOf(now, now.cuts) : last;
      drawLayers(pen, now, now.cuts, area.lanes, x, moment);
      drawLink(pen, now, size.revealed ? buckets : [], area.lanes, x, moment);
      if (size.revealed) drawEnds(pen, now, now.cuts, area.lanes, x);
      drawBoard(pen, now, now.cuts, size.revealed, area.board);
      drawRing(pen, now, size.revealed ? buckets : [], area.ring, moment);
      place?.(x);
      return inWords(now, now.cuts);
    },
  });
  const change = (cuts) => {
    const won = medal(state, cuts) === "gold";
    frame.set({ cuts, time: 1, known: won ? [...state.known, settingOf(state)] : state.known });
  };
  const film = { name: "time", values: TIMES, seconds: 4 };
  const options = Object.entries(PLANS).map(([name, { text }]) => [name, text]);
  frame.bet({ options, answer, film, play: (name) => ({ cuts: PLANS[name].cuts, time: 1 }) });
  frame.slider({ name: "machines", label: "machines", values: MACHINES });
  frame.slider({ name: "images", label: "images each", values: IMAGES });
  const links = Object.entries(LINKS).map(([name, { text }]) => [name, text]);
  frame.menu({ name: "link", label: "link", options: links });
  frame.player(film);
  frame.button({
    name: "best",
    text: () => "Give up",
    press: () => {
      const [known, given] = [state.known, state.given].map((all) => [...all, settingOf(state)]);
      frame.set({ known, given, cuts: bestCuts(state), time: 1 });
    },
  });
  place = gates(frame, state, change);
  return () => frame.close();
}

export { answer, bestCuts, bucketsOf, cutEvery, endOf, exchangeTime, game, inWords, medal };
export { readyTimes, worth, IMAGES, LAYERS, LINKS, MACHINES, OPENS, PLANS };
export default { render };
