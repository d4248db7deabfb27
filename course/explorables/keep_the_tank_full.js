// 10: the drawing of models/keep_the_tank_full.js.

const [TOP, BOTTOM] = [40, 170]; // of the tank, in pixels
const STRIPS = { lamp: BOTTOM + 30, host: BOTTOM + 50 };
const ms = (value) => `${Number(value.toFixed(1))} ms`;
const HOST = {
  prepares: "fill blue half",
  copies: "fill purple",
  waits: "fill red",
  reads: "fill red",
  full: "fill pale",
};
const LEGEND = [
  ["blue", "updates in the tank", "line"],
  ["fill orange", "device works: the lamp is on"],
  ["fill blue half", "host prepares a batch"],
  ["fill red", "host waits"],
  ["fill purple", "host copies"],
];

function place(width) {
  if (width < NARROW) return { tank: 44, left: 110, right: width - 8, narrow: true };
  return { tank: 110, left: 200, right: width - 16 };
}

// Below the legend, which takes more lines where it is narrow.
const barsAt = (width) => STRIPS.host + (width < NARROW ? 148 : 88);

// The tank at the present moment, the tap above it, the lamp below.
function drawTank(pen, { tank }, y, now, lit) {
  const shut = now.host === "reads" || now.host === "waits";
  pen.rect(16, TOP, tank, BOTTOM - TOP, "fill pale", 4);
  pen.rect(16, y(now.to), tank, BOTTOM - y(now.to), "fill blue", 2);
  pen.rect(16 + tank / 2 - 9, TOP - 16, 18, 12, shut ? "fill red" : "fill blue");
  pen.text(16, TOP - 24, shut ? "tap shut" : "tap open", "small faint");
  const on = now.to > 0;
  pen.dot(16 + tank / 2, STRIPS.lamp + 10, 13, on ? "fill orange" : "hollow grey");
  pen.text(16 + tank / 2, STRIPS.lamp + 40, `on ${Math.round(100 * lit)} %`, "middle bold");
}

// Level, lamp and host over time.
function drawTime(pen, spans, { left, right }, y) {
  const x = linear(0, LENGTH, left, right);
  rows(pen, ticks(0, y.back(TOP), 4), y, left, right);
  pen.text(left, TOP - 24, "updates in the tank", "small faint");
  const points = spans.flatMap(({ begin, end, from, to }) => [
    [x(begin), y(from)],
    [x(end), y(to)],
  ]);
  pen.path(points, "line blue");
  for (const { host, begin, end, lit } of spans) {
    const bar = (top, until, look) => pen.rect(x(begin), top, x(until) - x(begin), 12, look);
    bar(STRIPS.lamp, end, "fill pale");
    if (lit) bar(STRIPS.lamp, begin + lit, "fill orange");
    bar(STRIPS.host, end, HOST[host]);
  }
  for (const [name, top] of [["device", STRIPS.lamp], ["host", STRIPS.host]]) {
    pen.text(left - 7, top + 10, name, "small faint end");
  }
  const text = (time) => (time === LENGTH ? `${time} ms` : time);
  columns(pen, ticks(0, LENGTH, 4), x, STRIPS.host + 14, text);
}

// What the question asks for: one update with a read each, part after part, and one with few reads,
// host and device at once. The first bar is always as long.
function drawCost(pen, state, { left, right, narrow }, top) {
  const { host, held, device, each, seldom } = parts(state);
  const x = linear(0, each, left, left + (narrow ? 0.55 : 0.74) * (right - left));
  const bar = (begin, end, y, height, look) =>
    pen.rect(x(begin), y, Math.max(0, x(end) - x(begin) - 1), height, look, 2);
  const line = (y, name, time) => {
    pen.text(left - 7, y + 14, name, "small faint end");
    pen.text(x(time) + 6, y + 14, `${time.toFixed(1)} ms`, "bold");
  };
  pen.text(narrow ? 0 : left, top - 9, "time of an update, with a read", "small faint");
  bar(0, host, top, 20, HOST.prepares);
  bar(host, host + held, top, 20, HOST.copies);
  bar(host + held, each, top, 20, "fill orange");
  line(top, "every update", each);
  const below = top + 28;
  const longest = Math.max(host, device);
  bar(0, host, below, 10, HOST.prepares);
  bar(0, device, below + 10, 10, "fill orange");
  bar(longest, longest + held, below, 20, HOST.copies);
  bar(longest + held, seldom, below, 20, "fill red");
  line(below, `every ${SELDOM}th`, seldom);
  pen.text(right, top + (narrow ? 76 : 32), `${(each / seldom).toFixed(2)}×`, "big end");
}

// Why reading after every update costs so much, or so little; and whether it can cost more.
function reason(state) {
  const { host, held, device } = parts(state);
  const copy = held ? ` The copy's ${ms(held)} wait for both, however seldom you read.` : "";
  if (host === device) return `Both are equal: all of their work can overlap.${copy}`;
  const who = host < device ? "host" : "device";
  const now = cost(state);
  const more = TIMES.some((other) => cost({ ...state, host: other }) > now + 1e-6);
  const rest = more ? ` That is ${now.toFixed(2)}×; another host time costs more.` : "";
  const overlap = ms(Math.min(host, device));
  return `Only ${overlap} can overlap: the ${who} is the shorter part.${copy}${rest}`;
}

function inWords(state) {
  const { reads } = score(state);
  const { host, held, device, each, seldom } = parts(state);
  const all = [host, held, device].filter(Boolean).join(" + ");
  const by = state.holds.length ? ` ${reads} values were read, some of them by you.` : "";
  return (
    `Read after every update, one part waits for the other: ${all} = ${ms(each)}. ` +
    `Read every ${SELDOM} updates, host and device work at once: ${seldom.toFixed(1)} ms. ` +
    reason(state) +
    by
  );
}

// Space, or the button, is a read for as long as it is held, while the picture plays.
function holding(frame, state) {
  const [button, play] = ["item", "play"].map((name) => frame.root.querySelector(`.xp-${name}`));
  let held = false;
  play.addEventListener("click", () => state.time === LENGTH && frame.set({ holds: [] }));
  const press = () => {
    if (held) return;
    if (!frame.playing) play.click();
    held = true;
    const time = state.time === LENGTH ? 0 : state.time;
    const earlier = state.holds.filter(([begin]) => begin < time);
    frame.set({ time, holds: [...earlier, [time, Infinity]] });
  };
  const release = () => {
    if (!held) return;
    held = false;
    const [begin] = state.holds[state.holds.length - 1];
    frame.set({ holds: [...state.holds.slice(0, -1), [begin, state.time]] });
  };
  const ours = (event) => event.key === " " && (frame.playing || held || event.target === button);
  frame.root.addEventListener("keydown", (event) => {
    if (ours(event)) [event.preventDefault(), press()];
  });
  frame.root.addEventListener("keyup", (event) => {
    if (ours(event)) [event.preventDefault(), release()];
  });
  button.addEventListener("pointerdown", press);
  ["pointerup", "pointerleave", "blur"].forEach((name) => button.addEventListener(name, release));
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "keep-the-tank-full",
    ask: "The device takes 4 ms. At which host time does a read after every update cost most?",
    task:
      "Press Play: who waits for whom? Then read every 16 updates, play again, " +
      "and hold Space: as long as you do, you are .item().",
    caption:
      "Simulated: the host prepares a batch and pours its update into the tank, " +
      "the device drains it. " +
      "A read shuts the tap until the tank is dry. So does a copy, unless it is non_blocking: " +
      "then the device copies. Pinned memory halves its time. The tank holds 30 updates. " +
      "The panel below measures your machine.",
    state,
    height: (width) => barsAt(width) + (width < NARROW ? 84 : 58),
    draw: (pen, now, { width }) => {
      const { spans } = simulate(now, Math.max(0.5, now.time));
      const most = Math.max(2, ...spans.map(({ from }) => from));
      const [at, y] = [place(width), linear(0, 1.1 * most, BOTTOM, TOP)];
      drawTank(pen, at, y, spans[spans.length - 1], score(now).lit);
      drawTime(pen, spans, at, y);
      const copies = spans.some(({ host }) => host === "copies");
      const seen = LEGEND.filter(([look]) => copies || look !== HOST.copies);
      const begin = at.narrow ? 0 : at.left;
      legend(pen, seen, { left: begin, right: at.right, top: STRIPS.host + 38 });
      drawCost(pen, now, at, barsAt(width));
      return inWords(now);
    },
  });
  frame.bet({
    name: "host",
    options: BETS.map((host) => [host, ms(host)]),
    answer,
    // Reads by hand were part of another question.
    play: (host) => ({ host, holds: [] }),
  });
  frame.slider({ name: "host", label: "host per update", values: TIMES, text: ms });
  frame.slider({ name: "device", label: "device per update", values: TIMES, text: ms });
  const often = (every) => (every === 1 ? "1 update" : `${every} updates`);
  frame.slider({ name: "every", label: "read after", values: EVERY, text: often });
  frame.slider({ name: "copy", label: "a copy takes", values: steps(0, 6, 1), text: ms });
  const memories = Object.entries(MEMORIES);
  frame.menu({ name: "memory", label: "memory of the copy", options: memories });
  // Without a copy there is no choice to make.
  const menu = frame.root.querySelector(".xp-memory").closest(".xp-control");
  frame.watch(() => (menu.style.display = state.copy ? "" : "none"));
  frame.player({ name: "time", values: steps(0, LENGTH, 0.5), seconds: 8 });
  frame.button({ name: "item", text: () => "hold: .item()", press: () => {} });
  holding(frame, state);
  return () => frame.close();
}

export { answer, copying, cost, pace, parts, score, simulate, BETS, EVERY, OPENS, TIMES };
export default { render };
