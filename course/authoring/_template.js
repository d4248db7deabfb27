// 24: a batch that is computed in blocks of rows; each call has a fixed cost.

const OPENS = { rows: 1, fixed: 20, work: 1 }; // rows of a block, microseconds
const ALL = 64;
const ROWS = [1, 2, 4, 8, 16, 32, 64];
const FIXED = [1, 2, 5, 10, 20, 50, 100];

// Microseconds of a step, by what takes them.
function account({ rows, fixed, work }) {
  return { calls: (ALL / rows) * fixed, work: ALL * work };
}

const total = (state) => sum(Object.values(account(state)));

// The smallest block with which calls take no more than the work; none where there is none.
function answer(state) {
  const enough = (rows) => {
    const parts = account({ ...state, rows });
    return parts.calls <= parts.work;
  };
  return ROWS.filter(enough).slice(0, 1);
}

// ---------------------------------------------------------------- drawing

const LOOKS = { calls: "fill orange", work: "fill blue" };
const TOP = 84; // of the bar of time, in pixels

// A row is a cell; a gap stands where a call ends.
function drawRows(pen, { rows }, width) {
  const wide = width / ALL;
  for (let row = 0; row < ALL; row++) {
    const last = (row + 1) % rows === 0;
    pen.rect(wide * row, 10, wide - (last ? 2 : 0), 40, "fill grey");
  }
}

function drawTime(pen, state, width) {
  const x = linear(0, total({ ...state, rows: 1 }), 0, width);
  let begin = 0;
  for (const [part, length] of Object.entries(account(state))) {
    pen.rect(x(begin), TOP, x(length) - x(0), 30, LOOKS[part]);
    begin += length;
  }
  const entries = Object.entries(LOOKS).map(([part, look]) => [look, part]);
  legend(pen, entries, { left: 0, right: width, top: TOP + 44 });
}

function inWords(state) {
  const calls = ALL / state.rows;
  const least = total({ ...state, rows: ALL });
  const words = calls === 1 ? "One call" : `${calls} calls`;
  return `${words}, ${total(state)} µs. To beat: ${least} µs, all rows at once.`;
}

function render({ el }) {
  const state = { ...OPENS };
  const frame = new Frame(el, {
    name: "my_technique",
    ask: "How many rows must a block have, so that calls take no longer than the work?",
    task: "Make the blocks larger, or the calls cheaper.",
    caption: "Simulated: a call costs the same for any block. The panel below measures.",
    state,
    height: () => TOP + 70,
    draw: (pen, now, { width }) => {
      drawRows(pen, now, width);
      drawTime(pen, now, width);
      return inWords(now);
    },
  });
  const options = [8, 16, 32, 64].map((rows) => [rows, String(rows)]);
  frame.bet({ name: "rows", options, answer, play: (rows) => ({ rows }) });
  frame.slider({ name: "fixed", label: "a call costs", values: FIXED, text: (us) => `${us} µs` });
  frame.slider({ name: "rows", label: "rows of a block", values: ROWS });
  return () => frame.close();
}

export { account, answer, OPENS, ROWS };
export default { render };
