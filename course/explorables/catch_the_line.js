// 23: a sampler looks at a running script: which line takes the time?

const ROW = { wide: 21, narrow: 31 };
const TOP = 8;
const CODE = 430; // pixels of the code, where bars have room beside it
const LETTER = 6.63; // of code on a narrow page
const GAP = 12;
// A line is drawn apart from the one above where lines between them are left out.
const apart = (i) => (i > 0 && LINES[i] > LINES[i - 1] + 1 ? 1 : 0);
const cuts = (until) => sum(LINES.slice(0, until + 1).map((_, i) => apart(i)));
const BETS = [
  [20, "20: images.max()"],
  [38, "38: model(x)"],
  [40, "40: backward()"],
  [43, "43: loss.item()"],
  [44, "44: sum(map(…))"],
];

function heightOf(width) {
  const row = width < NARROW ? ROW.narrow : ROW.wide;
  return TOP + row * LINES.length + GAP * cuts(LINES.length - 1) + 6;
}

function drawCode(pen, x, y, words, size) {
  const node = pen.text(x, y, words);
  node.setAttribute("style", `white-space: pre; font: ${size}px ui-monospace, monospace`);
  return node;
}

// A line of the script, and the looks that hit it: as a bar, and as a share.
function drawLine(pen, state, i, area) {
  const { width, narrow, found, revealed } = area;
  const [line, row] = [LINES[i], narrow ? ROW.narrow : ROW.wide];
  const y = TOP + row * i + GAP * cuts(i);
  const mended = state.mended.includes(line);
  if (apart(i)) pen.text(12, y - 1, "⋯", "small faint middle");
  pen.text(24, y + 13, line, "small faint end");
  const room = narrow ? Math.floor((width - 34) / LETTER) : 100;
  const all = textOf(state, line);
  // Half of the indent, where there is little room.
  const text = narrow ? all.replace(/^( *)\1/, "$1") : all;
  const words = text.length > room ? `${text.slice(0, room - 1)}…` : text;
  const code = drawCode(pen, 34, y + 13, words, narrow ? 11 : 12);
  if (mended) code.classList.add("xp-green");
  if (!TIMES[state.script][line]) return;
  const [left, right] = narrow ? [34, width - 52] : [CODE + 34, width - 52];
  const [top, high] = narrow ? [y + 19, 5] : [y + 3, row - 8];
  pen.rect(left, top, right - left, high, "fill pale", 2);
  if (!revealed || !state.looks) return;
  const share = found[i] / state.looks;
  const look = mended ? "fill green" : "fill blue";
  pen.rect(left, top, (right - left) * Math.min(1, share / 0.6), high, look, 2);
  const end = `small end ${share === Math.max(...found) / state.looks ? "bold" : "faint"}`;
  pen.text(width - 8, narrow ? y + 27 : y + 13, `${(100 * share).toFixed(0)} %`, end);
}

function render({ el }) {
  const state = { ...OPENS };
  const film = { name: "looks", values: steps(0, LOOKS, 8), seconds: 4 };
  const frame = new Frame(el, {
    name: "catch-the-line",
    ask: "Which line takes most of the time?",
    task:
      "A script trains a network, and is slow. A sampler looks every 2 ms which line it is in. " +
      "Bet, see the looks arrive, mend a line (✎), and look again.",
    caption:
      "Simulated looks at two scripts of this course. The time of each line, as it is and mended, " +
      "was sampled on two cores of a CPU, and rounded. Lines that are left out take next to none.",
    state,
    height: heightOf,
    draw: (pen, now, { width, narrow, revealed }) => {
      const found = counts(now);
      LINES.forEach((_, i) => drawLine(pen, now, i, { width, narrow, found, revealed }));
      return inWords(now);
    },
  });
  frame.bet({ options: BETS, answer, play: () => ({ looks: LOOKS }), film });
  frame.choice({
    name: "script",
    label: "script",
    options: SCRIPTS.map((name) => [name, name]),
    change: (script) => {
      frame.set({ script, mended: [], looks: 0 });
      frame.reopen();
    },
  });
  frame.slider({ name: "looks", label: "looks", values: steps(0, MOST, 8) });
  frame.player(film);
  for (const line of Object.keys(MENDED).map(Number)) {
    frame.button({
      name: `mend-${line}`,
      text: ({ mended }) => `${mended.includes(line) ? "↶" : "✎"} ${line}`,
      press: () => frame.set({ ...toggle(state, line), looks: state.looks || LOOKS }),
    });
  }
  return () => frame.close();
}

export { answer, counts, epochOf, gain, inWords, interval, limit, textOf, times, toggle };
export { LINES, LOOKS, MENDED, OPENS, SCRIPTS, TEXTS, TIMES };
export default { render };
