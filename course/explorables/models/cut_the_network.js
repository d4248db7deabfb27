// 12: where to cut a network, what each cut costs and saves, and how plans are searched.

// What each block saves for its backward, and what of it it hands on, in units of memory.
const LEVELS = {
  equal: { name: "12 equal blocks", saved: Array(12).fill(6), outputs: Array(12).fill(2) },
  resnet: {
    name: "a ResNet: early blocks are large",
    saved: [12, 12, 12, 12, 8, 6, 6, 4, 3, 3, 2, 2, 2, 1],
    outputs: [4, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1],
  },
  hourglass: {
    name: "an hourglass: small in the middle",
    saved: [12, 9, 6, 4, 3, 2, 3, 4, 6, 9, 12, 10],
    outputs: [6, 4, 3, 2, 1, 1, 1, 2, 3, 4, 6, 1],
  },
  necks: {
    name: "wide and narrow in turn",
    saved: Array(7).fill([9, 3]).flat(),
    outputs: Array(7).fill([8, 1]).flat(),
  },
};
const [PIECES, THRESHOLDS, POOL] = [6, 24, 16];
const OPENS = {
  ...{ level: "equal", pieces: 3, own: null, generation: 0 },
  ...{ known: [], given: [], nested: false },
};

const lengthOf = (level) => LEVELS[level].saved.length;
const uncut = (level) => sum(LEVELS[level].saved);

// The pieces between the cuts: the outputs held before them, and what their own blocks save.
function piecesOf(level, cuts) {
  const { saved, outputs } = LEVELS[level];
  const bounds = [0, ...cuts, saved.length];
  let held = 0;
  return bounds.slice(1).map((end, i) => {
    const first = bounds[i];
    const piece = { first, end, held, inside: sum(saved.slice(first, end)) };
    held += outputs[end - 1];
    return piece;
  });
}

const need = ({ held, inside }) => held + inside;
const peakOf = (level, cuts) => Math.max(...piecesOf(level, cuts).map(need));
// The piece with the peak; of equal ones the last.
const worst = (pieces) => pieces.reduce((a, b) => (need(b) >= need(a) ? b : a));

// Blocks that run forward once more: those of all pieces but the last.
const again = (cuts) => cuts[cuts.length - 1] ?? 0;

function equalCuts(level, pieces) {
  const blocks = lengthOf(level);
  return steps(1, pieces - 1, 1).map((piece) => Math.floor((blocks * piece) / pieces));
}

const rootPieces = (level) => Math.round(Math.sqrt(lengthOf(level)));

// Of these plans one with the lowest peak; of equal ones the first.
function lowest(level, plans) {
  const peaks = plans.map((cuts) => peakOf(level, cuts));
  return plans[peaks.indexOf(Math.min(...peaks))];
}

// A cut behind each block with which a piece saves more than the threshold.
function cutAbove(level, threshold) {
  const cuts = [];
  let inside = 0;
  LEVELS[level].saved.slice(0, -1).forEach((saved, block) => {
    inside += saved;
    if (inside <= threshold) return;
    cuts.push(block + 1);
    inside = 0;
  });
  return cuts;
}

function gridPlans(level) {
  const step = uncut(level) / (THRESHOLDS + 1);
  return steps(1, THRESHOLDS, 1).map((number) => cutAbove(level, number * step));
}

const gridCuts = (level) => lowest(level, gridPlans(level));

// Move a cut, merge two pieces, or split one.
function mutated(cuts, blocks, draw) {
  const way = draw(3);
  if (way === 2 || !cuts.length) {
    const place = 1 + draw(blocks - 1);
    return ordered([...cuts, place]);
  }
  const chosen = draw(cuts.length);
  const rest = cuts.filter((_, i) => i !== chosen);
  if (way === 1) return rest;
  const [low, high] = [cuts[chosen - 1] ?? 0, cuts[chosen + 1] ?? blocks];
  return ordered([...rest, low + 1 + draw(high - low - 1)]);
}

const ordered = (cuts) => [...new Set(cuts)].sort((a, b) => a - b);

// The cuts of one plan in front of a place, those of another behind it.
const crossed = (one, other, place) => [
  ...one.filter((cut) => cut < place),
  ...other.filter((cut) => cut >= place),
];

function distinct(plans) {
  return [...new Map(plans.map((cuts) => [cuts.join(), cuts])).values()];
}

// The plans of each generation, the best first: the grid's, then the best of parents and children.
function evolve(level, generations) {
  const blocks = lengthOf(level);
  const random = uniform(1 + Object.keys(LEVELS).indexOf(level));
  const draw = (count) => Math.floor(count * random());
  const by = (a, b) => peakOf(level, a) - peakOf(level, b);
  const rank = (plans) => distinct(plans).sort(by).slice(0, POOL);
  const all = [rank(gridPlans(level))];
  for (let number = 1; number <= generations; number++) {
    const parents = all[number - 1];
    const children = parents.flatMap((cuts) => {
      const other = parents[draw(parents.length)];
      const mixed = crossed(cuts, other, 1 + draw(blocks - 1));
      return [mutated(cuts, blocks, draw), mutated(mixed, blocks, draw)];
    });
    all.push(rank([...parents, ...children]));
  }
  return all;
}

// The lowest peak of all plans, from the last block to the first: rest[s] is what the blocks from s
// on need beyond what is held before them.
function exactCuts(level) {
  const { saved, outputs } = LEVELS[level];
  const blocks = saved.length;
  const rest = Array(blocks + 1).fill(0);
  const next = Array(blocks).fill(blocks);
  for (let first = blocks - 1; first >= 0; first--) {
    let inside = 0;
    rest[first] = Infinity;
    for (let end = first + 1; end <= blocks; end++) {
      inside += saved[end - 1];
      const after = end < blocks ? outputs[end - 1] + rest[end] : 0;
      const need = Math.max(inside, after);
      if (need < rest[first]) [rest[first], next[first]] = [need, end];
    }
  }
  const cuts = [];
  for (let place = next[0]; place < blocks; place = next[place]) cuts.push(place);
  return cuts;
}

// For each peak that is possible the fewest blocks that run once more, the lowest peak first.
function frontier(level) {
  const { saved, outputs } = LEVELS[level];
  const blocks = saved.length;
  const known = new Map();
  // Forward runs until the backward of these blocks is done, in this much room.
  const runs = (first, end, room) => {
    if (first === end) return 0;
    if (room <= 0) return Infinity;
    const key = (first * (blocks + 1) + end) * 256 + room;
    if (known.has(key)) return known.get(key);
    let best = saved[first] <= room ? 1 + runs(first + 1, end, room - saved[first]) : Infinity;
    for (let cut = first + 1; cut < end; cut++) {
      const behind = runs(cut, end, room - outputs[cut - 1]);
      if (behind < Infinity) best = Math.min(best, cut - first + behind + runs(first, cut, room));
    }
    known.set(key, best);
    return best;
  };
  const all = steps(1, uncut(level), 1).map((peak) => [peak, runs(0, blocks, peak) - blocks]);
  const possible = all.filter(([, extra]) => extra < Infinity);
  return possible.filter(([, extra], i) => i === 0 || extra < possible[i - 1][1]);
}

const SHAPES = { first: "the first", last: "the last", equal: "all equal" };

// Lengths of so many pieces, none longer than the one before it.
function shrinking(blocks, count, longest = blocks) {
  if (!count) return blocks ? [] : [[]];
  return steps(1, Math.min(longest, blocks), 1).flatMap((length) =>
    shrinking(blocks - length, count - 1, length).map((rest) => [length, ...rest]),
  );
}

// The best plan of six pieces in which the first or the last are the longest, or all are equal.
function bestShape(level, shape) {
  if (shape === "equal") return equalCuts(level, PIECES);
  const lengths = shrinking(lengthOf(level), PIECES).filter((all) => all[0] > all[PIECES - 1]);
  const plans = lengths.map((all) => {
    const order = shape === "first" ? all : [...all].reverse();
    return order.slice(0, -1).map((_, i) => sum(order.slice(0, i + 1)));
  });
  return lowest(level, plans);
}

function answer({ level }) {
  const shapes = Object.keys(SHAPES);
  const peaks = shapes.map((shape) => peakOf(level, bestShape(level, shape)));
  return shapes.filter((_, i) => peaks[i] === Math.min(...peaks));
}

const goals = (level) => ({
  root: peakOf(level, equalCuts(level, rootPieces(level))),
  grid: peakOf(level, gridCuts(level)),
  exact: peakOf(level, exactCuts(level)),
});

function medal(level, peak) {
  const { root, grid, exact } = goals(level);
  if (peak === exact) return "gold";
  if (peak < grid) return "silver";
  return peak < root ? "bronze" : "";
}

const cutsOf = (state) => state.own ?? equalCuts(state.level, state.pieces);

// ---------------------------------------------------------------- in words

// `bests`: the lowest peak of each generation of the genetic search.
function inWords(state, cuts, bests) {
  const pieces = piecesOf(state.level, cuts);
  const { held, inside } = worst(pieces);
  const number = pieces.indexOf(worst(pieces)) + 1;
  const beside = held ? `, beside ${held} of outputs` : "";
  const found = state.generation ? ` Genetic, best by generation: ${bests.join(" ")}.` : "";
  const why = `piece ${number} of ${pieces.length} saves ${inside}${beside}`;
  return `Peak ${held + inside}: ${why}. ${game(state, held + inside, 2 * held >= inside)}${found}`;
}

function game(state, peak, waiting) {
  const { level } = state;
  const { root, grid, exact } = goals(level);
  const ways = (2 ** (lengthOf(level) - 1)).toLocaleString("en");
  if (state.nested) {
    const [least, runs] = frontier(level)[0];
    return `Checkpoints in checkpoints need ${least} at least: ${runs} blocks run again.`;
  }
  if (peak === exact) {
    const won = state.given.includes(level) ? "This is exact" : "★ Gold";
    return `${won}: none of all ${ways} ways is lower.`;
  }
  const next = waiting ? "Later pieces need room for more outputs." : "Shorten the red piece.";
  const prize = medal(level, peak);
  if (!prize) return `${next} To beat: ${root}, √n equal pieces.`;
  if (prize === "bronze") return `${next} Bronze; to beat for silver: ${grid}, the grid's.`;
  return `Silver. Is it the lowest of all ${ways} ways?`;
}
