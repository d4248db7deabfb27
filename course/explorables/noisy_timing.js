// 00: the drawing of models/noisy_timing.js.

const PLANS = [
  ["sequence", "One after the other", "A A A … B B B"],
  ["turn", "In turn", "A B B A  A B B A …"],
];
const LETTER = 14; // pixels from one letter beside a line to the next
const TIGHT = 300; // pixels in which a row has no room for its details
const ROWS = { narrow: 316, wide: 198 }; // pixels
const percent = (part) => `${Number((100 * part).toPrecision(2))} %`;
const signed = (part) => `${part < 0 ? "−" : "+"}${Math.abs(100 * part).toFixed(1)}`;

function drawRuns(pen, state, plan, { left, right, top, bottom }) {
  const taken = experiment({ ...state, plan });
  const room = 1.12 * (state.drift / 2 + 2.4 * state.noise + state.planted) + 0.015;
  const x = linear(0, taken.length, left, right);
  const y = linear(RUN * (1 - room), RUN * (1 + room), bottom, top);
  const wave = weather(state.seed);
  const inside = (value) => clamp(y(value), top, bottom);
  const marks = ticks(RUN * (1 - room), RUN * (1 + room), 5);
  const last = marks[marks.length - 1];
  rows(pen, marks, y, left, right, (value) => `${value}${value === last ? " ms" : ""}`);
  const path = steps(0, 100, 1).map((i) => [
    left + ((right - left) * i) / 100,
    y(RUN * (1 + state.drift * wave(i / 100))),
  ]);
  pen.path(path, "line grey half thick");
  const radius = taken.length > 80 ? 2.6 : 4;
  taken.forEach(({ program, time }, i) => {
    const [across, up] = [x(i + 0.5), inside(time)];
    if (program === "A") pen.dot(across, up, radius, "fill blue");
    else pen.rect(across - radius, up - radius, 2 * radius, 2 * radius, "fill orange");
  });
  const level = (wanted) =>
    y(mean(taken.filter(({ program }) => program === wanted).map(({ time }) => time)));
  const middle = (level("A") + level("B")) / 2;
  for (const [program, hue] of [["A", "blue"], ["B", "orange"]]) {
    const own = level(program);
    pen.line(left, own, right, own, `${hue} thin`);
    // Beside its line, and never on the other letter.
    const side = own < middle || (own === middle && program === "A") ? -1 : 1;
    const beside = side * Math.max(Math.abs(own - middle), LETTER / 2);
    pen.text(right + 6, middle + beside + 4, program, `small bold ${hue}`);
  }
  return verdict(plan, taken);
}

// What the machine alone claims: the same experiment with equal programs.
const alone = (state, plan) => verdict(plan, experiment({ ...state, plan, planted: 0 })).claim;

const HUES = { right: "green", luck: "purple", wrong: "red" };
const IN_WORDS = { wrong: "wrong", luck: "by luck", right: "found" };

// One small square for each experiment, the claims first. Nothing is seen of it before the bet.
function drawWaffle(pen, found, planted, { left, top, size, across }, { revealed, opening }) {
  const rank = { wrong: 0, luck: 1, right: 2, missed: 3, none: 3 };
  const judged = [...found].sort((a, b) => rank[a] - rank[b]);
  const place = (i) => [left + size * (i % across), top + size * Math.floor(i / across)];
  judged.forEach((word, i) => {
    const look = revealed ? `fill ${HUES[word] ?? "edge"}` : "fill edge";
    const square = pen.rect(...place(i), size - 2, size - 2, look, 2);
    if (opening) appear(square, 6 * i);
  });
  const height = (size * judged.length) / across;
  if (!revealed) pen.text(left + (size * across) / 2, top + height / 2 + 9, "?", "big middle");
  if (revealed && !planted) {
    const [x, y] = place(0);
    pen.rect(x - 2, y - 2, size * BY_CHANCE + 2, size + 2, "line thin", 3);
    const words = `in the frame: ${BY_CHANCE}, by chance`;
    pen.text(left, top + height + 12, words, "small faint");
  }
  const count = (wanted) => judged.filter((word) => word === wanted).length;
  return { wrong: count("wrong"), luck: count("luck"), right: count("right") };
}

// A square of a waffle that fills after the bet, so many milliseconds later than the first.
function appear(square, delay) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  square.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 120, delay, fill: "backwards" });
}

// Coloured words behind each other: entries are pairs of words and look.
function drawWords(pen, x, y, entries) {
  let place = x;
  for (const [words, look] of entries.filter(([text]) => text)) {
    const text = pen.text(place, y, words, look);
    place += text.getComputedTextLength() + 8;
  }
}

function drawRow(pen, state, [plan, title, pattern], top, { width, narrow, ...seen }) {
  const split = narrow ? width : width - 270;
  const area = { left: 46, right: split - 24, top: top + 42, bottom: top + 158 };
  pen.text(0, top + 12, title, "bold");
  const tight = width < TIGHT;
  if (!tight) pen.text(area.right, top + 12, pattern, "small faint end");
  const now = drawRuns(pen, state, plan, area);
  const { claim } = now;
  const fate = judge(claim, state.planted, alone(state, plan));
  const luck = fate === "luck" ? ", by luck" : "";
  const word = claim === "no difference" ? "no claim" : `claim: ${claim}${luck}`;
  const hue = HUES[fate] ?? "faint";
  const interval = tight ? "" : ` [${signed(now.low)}, ${signed(now.high)}]`;
  const told = `${signed(now.difference)}${interval} %, ${word}`;
  pen.text(narrow ? 0 : area.left, top + 30, narrow ? told : `B − A: ${told}`, `small bold ${hue}`);
  const found = judgements({ ...state, plan });
  const waffle = narrow
    ? { left: 46, top: top + 196, size: Math.min(12.5, (width - 70) / 25), across: 25 }
    : { left: split + 16, top: top + 42, size: 12.5, across: 20 };
  const counts = drawWaffle(pen, found, state.planted, waffle, seen);
  const kinds = state.planted ? ["wrong", "luck", "right"] : ["wrong"];
  const words = state.planted && seen.revealed ? "" : " experiments";
  const entries = [[tight ? "" : `${EXPERIMENTS}${words}:`, "small faint"]];
  for (const kind of seen.revealed ? kinds : []) {
    entries.push([`${counts[kind]} ${IN_WORDS[kind]}`, `small bold ${HUES[kind]}`]);
  }
  drawWords(pen, waffle.left, waffle.top - 11, entries);
  return counts;
}

function inWords(state, counts) {
  const [sequence, turn] = counts;
  const all = `of ${EXPERIMENTS}`;
  if (!state.planted) {
    return (
      `The programs are equal. One after the other, ${sequence.wrong} ${all} claim a difference` +
      `${state.drift ? ", for the machine drifts between A and B" : ""}; in turn, ${turn.wrong}. ` +
      `Why not 0? A 95 % interval is wrong 5 times in 100: about ${BY_CHANCE} ${all}, by chance.`
    );
  }
  const missed = EXPERIMENTS - turn.right - turn.wrong - turn.luck;
  const more = missed > turn.right ? `; ${missed} need more runs than ${state.runs}` : "";
  return (
    `B is ${percent(state.planted)} slower. One after the other, ${sequence.wrong} ${all} say ` +
    `faster, ${sequence.luck} say slower by luck, as they say it of equal programs too, and ` +
    `${sequence.right} find the difference. In turn, ${turn.right} find it, ${turn.luck} by ` +
    `luck, ${turn.wrong} wrong${more}.`
  );
}

function render({ el }) {
  const state = { ...OPENS };
  let covered = true;
  const frame = new Frame(el, {
    name: "noisy-timing",
    ask:
      "Two equal programs, timed one after the other: how many of 200 timings claim a difference?",
    task: "Then make B really slower, by 1 % first: which order finds it, which has only luck?",
    caption:
      "Simulated: program A takes 10 ms; the grey line is the machine, whose speed drifts " +
      "(heat, other programs); each run adds random noise. " +
      "An experiment claims a difference when the 95 % interval of B − A leaves out 0: " +
      "a range that contains the true difference 95 times in 100. A true claim is luck where the " +
      "same machine makes it of equal programs, too. " +
      "Each square is one experiment on another machine. " +
      "Nothing here is measured. The panels of this course measure in turn.",
    state,
    height: (width) => (width < NARROW ? 2 * ROWS.narrow : 2 * ROWS.wide),
    draw: (pen, now, size) => {
      const step = size.narrow ? ROWS.narrow : ROWS.wide;
      const seen = { ...size, opening: covered && size.revealed };
      covered = !size.revealed;
      const counts = PLANS.map((plan, i) => drawRow(pen, now, plan, step * i, seen));
      return inWords(now, counts);
    },
  });
  frame.bet({ options: BETS.map((count) => [count, `about ${count}`]), answer });
  const parts = [
    ["drift", "drift of the machine", steps(0, 0.2, 0.01)],
    ["noise", "noise of each run", steps(0.005, 0.08, 0.005)],
    ["planted", "B is slower by", steps(0, 0.1, 0.005)],
  ];
  for (const [name, label, values] of parts) frame.slider({ name, label, values, text: percent });
  frame.slider({ name: "runs", label: "runs of each", values: [8, 12, 20, 40, 80] });
  frame.button({
    name: "again",
    text: () => "Another machine",
    press: () => frame.set({ seed: state.seed + 1 }),
  });
  return () => frame.close();
}

export { OPENS, answer, order, weather, experiment, quantile, verdict, claims, judge, judgements };
export default { render };
