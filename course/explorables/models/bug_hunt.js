// 17: a game of five cases. One of eight boxes is faulty: which tool names it, at what price?

const BOXES = 8;
// The loss is a column of its own, behind the boxes.
const LOSS = BOXES;
const COLUMNS = BOXES + 1;
const CASES = 5;
const STEPS = 10_000; // of one second each
const NUMBERS = 64; // in the input of a box
// Seconds of a box: an eighth of the forward pass, which is a third of the step.
const CALL = 1 / (3 * BOXES);
// Seconds that the slow box takes longer. The profiler's seconds are those of a whole step.
const SLOW = 2;
const EACH = 1 / COLUMNS;
const FAULTS = ["divides", "root", "backward", "slow"];
const TOOLS = ["outputs", "once", "always", "gradcheck", "profiler"];
// A step with the tool / a step without: recorded with layers of 16, on two cores of a CPU.
const RATIO = { outputs: 1.4, anomaly: 12, profiler: 3.5 };

// `used`: tools in the order of their use; `accused`: wrong boxes; `last`: a tool, or "accused";
// `chosen`: the box that may be accused next; `paid`: seconds of each case that was solved, null of
// one that was not.
const ANEW = { used: [], accused: [], last: "", chosen: 0 };
const OPENS = { game: 124, round: 0, ...ANEW, paid: [] };

// The first case of every game divides; each fault comes once, and one of them twice.
function deal(game) {
  const next = uniform(game);
  const pick = (count) => Math.floor(next() * count);
  const rest = FAULTS.slice(1);
  for (let last = rest.length - 1; last > 0; last--) {
    const other = pick(last + 1);
    [rest[last], rest[other]] = [rest[other], rest[last]];
  }
  const faults = ["divides", ...rest, FAULTS[pick(FAULTS.length)]];
  // Not the first nor the last box: evidence that points at an end is not right by chance.
  return faults.map((fault) => ({ fault, box: 1 + pick(BOXES - 2), bad: 1500 + pick(8000) }));
}

const current = ({ game, round }) => deal(game)[round];

// What a tool shows, one entry per column: a mark or null; of the profiler, seconds.
function evidence(tool, { fault, box }) {
  const columns = steps(0, COLUMNS - 1, 1);
  if (tool === "outputs") {
    return columns.map((i) => (fault === "divides" && i >= box ? "nan" : "ok"));
  }
  if (tool === "gradcheck") {
    const mark = (i) => (fault === "backward" && i === box ? "wrong" : "ok");
    return columns.map((i) => (i === LOSS ? null : mark(i)));
  }
  if (tool === "profiler") {
    return columns.map((i) => (fault === "slow" && i === box ? EACH + SLOW : EACH));
  }
  // Anomaly mode: the backward pass begins at the loss. There a nan of the forward pass is met.
  const named = { divides: LOSS, root: box }[fault];
  return columns.map((i) => (i === named ? "named" : null));
}

// The column that a tool points at, or -1.
function named(tool, given) {
  const found = evidence(tool, given);
  if (tool === "profiler") return found.findIndex((seconds) => seconds > EACH);
  return found.findIndex((mark) => ["nan", "wrong", "named"].includes(mark));
}

// Seconds that a tool takes. Without a nan, anomaly mode is on until the end.
function price(tool, { fault, bad }) {
  const until = ["divides", "root"].includes(fault) ? bad : STEPS;
  return {
    outputs: RATIO.outputs,
    once: RATIO.anomaly,
    always: RATIO.anomaly * until,
    gradcheck: 2 * NUMBERS * BOXES * CALL,
    profiler: RATIO.profiler,
  }[tool];
}

// Who accuses a box that is right trains again, until the fault shows.
const fine = ({ fault, bad }) => (["divides", "root"].includes(fault) ? bad : STEPS);

const cheapest = (tools, given) =>
  tools.reduce((best, tool) => (price(tool, given) < price(best, given) ? tool : best));

// The cheapest of the tools that name the faulty box.
function answer(state) {
  const given = current(state);
  return [cheapest(TOOLS.filter((tool) => named(tool, given) === given.box), given)];
}

const least = (state) => price(answer(state)[0], current(state));

// Seconds of the present case until now.
function spent({ used, accused, ...rest }) {
  const given = current(rest);
  return sum(used.map((tool) => price(tool, given))) + accused.length * fine(given);
}

const solved = ({ paid, round }) => paid.length > round;

// A tool is used, and paid, once.
function use(state, tool) {
  if (solved(state)) return {};
  const used = state.used.includes(tool) ? state.used : [...state.used, tool];
  return { used, last: tool };
}

function accuse(state) {
  const { chosen, accused, paid } = state;
  if (solved(state) || accused.includes(chosen)) return {};
  if (chosen === current(state).box) return { paid: [...paid, spent(state)] };
  return { accused: [...accused, chosen], last: "accused" };
}

// The next case, or another game behind the last one. One that is left unsolved has no price.
function advance({ game, round, paid }) {
  const marks = paid.length > round ? paid : [...paid, null];
  if (round < CASES - 1) return { ...ANEW, round: round + 1, paid: marks };
  return { ...ANEW, game: game + 1, round: 0, paid: [] };
}

// Seconds of the cheapest ways through the cases that were played.
function par({ game, paid }) {
  return sum(paid.map((_, round) => least({ game, round })));
}

// ---------------------------------------------------------------- words

const NAMES = {
  outputs: "outputs",
  once: "anomaly mode, one step",
  always: "anomaly mode, all steps",
  gradcheck: "gradcheck",
  profiler: "profiler",
};
const FAULTY = {
  divides: "it divides 0 by 0",
  root: "the root of 0 is 0, but its slope is infinite",
  backward: "its backward pass forgets a factor",
  slow: "it runs a loop of Python",
};

const letter = (column) => (column === LOSS ? "loss" : `box ${column + 1}`);

// 12 s, 25 min, 21 h
function time(seconds) {
  if (seconds < 120) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

// In one or two lines.
function symptom({ fault, bad }, round) {
  const nan = `from step ${bad.toLocaleString("en")} on the loss is nan.`;
  if (round === 0) return ["A box divides 0 by 0:", nan];
  if (fault === "backward") return ["The loss falls less than it should.", "No number is nan."];
  if (fault === "slow") {
    return [`A step takes ${1 + SLOW} s instead of 1 s.`, "The loss is as it should be."];
  }
  return [nan.replace("f", "F")];
}

function shows(tool, given) {
  const column = named(tool, given);
  const name = column >= 0 ? letter(column).replace("b", "B").replace("l", "L") : "";
  if (tool === "outputs") {
    if (column < 0) return "Outputs: all results are finite.";
    return `${name} is the first whose result is nan, though what it was given is finite.`;
  }
  if (tool === "gradcheck") {
    if (column < 0) return "Gradcheck: each box has the right gradient at random numbers.";
    return `${name} has a gradient that is not the slope of its result.`;
  }
  if (tool === "profiler") {
    if (column < 0) return "Profiler: all boxes take as long.";
    return `${name} takes most of the step.`;
  }
  if (column < 0) return "Anomaly mode: no backward step made a nan.";
  if (column === LOSS) {
    return (
      "Anomaly mode names the loss, where the backward pass begins: " +
      "it has met a nan that came from the forward pass."
    );
  }
  return `Anomaly mode names ${letter(column)}: its backward step made nan from finite numbers.`;
}

function inWords(state) {
  const given = current(state);
  if (solved(state)) {
    const best = `${NAMES[answer(state)[0]]} alone, ${time(least(state))}`;
    const words = `Box ${given.box + 1} it is: ${FAULTY[given.fault]}. `;
    return `${words}You paid ${time(state.paid[state.round])}; least: ${best}. ${score(state)}`;
  }
  const { last, accused } = state;
  const paid = `So far: ${time(spent(state))}.`;
  if (last === "accused") {
    const words = `Box ${accused[accused.length - 1] + 1} was right. You changed it for nothing, `;
    return `${words}and trained again: ${time(fine(given))} more. ${paid}`;
  }
  if (!last) return `${symptom(given, state.round).join(" ")} Choose a tool above.`;
  return `${shows(last, given)} ${paid} Accuse a box, or use another tool.`;
}

function score({ game, paid }) {
  if (paid.length < CASES) return "";
  const solvedOnes = paid.filter((price) => price !== null);
  const words = `All cases: ${time(sum(solvedOnes))}, least: ${time(par({ game, paid }))}. `;
  if (solvedOnes.length < CASES) return `${words}${solvedOnes.length} of ${CASES} solved.`;
  const ratio = sum(solvedOnes) / par({ game, paid });
  return words + (ratio < 1.5 ? "★ No bug is safe from you!" : ratio < 10 ? "A good nose." : "");
}
