// 11: the memory of one training step of a chain of equal blocks, with checkpoints.

// What one block needs, in tensors of equal size, and its time, in forward passes.
const BLOCK = { saved: 4, output: 1, bare: 2, working: 1, forward: 1, backward: 2 };
const INPUT = 1;
const OPENS = { blocks: 16, every: 8, saved: BLOCK.saved, own: null, time: 0.2 };
const [NOTHING, OUTPUT, ALL] = [0, 1, 2];

// Places of the checkpoints behind every `every` blocks; none where there are no more blocks.
function regular(blocks, every) {
  return Array.from({ length: blocks - 1 }, (_, i) => i + 1).filter((place) => place % every === 0);
}

// One step, event by event. `cuts`: before which blocks the step keeps only what crosses there;
// all segments but the last run again in the backward pass.
// Each event: what runs, tensors alive after it and at most in it, what each block holds.
function account(blocks, cuts, saved = BLOCK.saved) {
  const held = Array(blocks).fill(NOTHING);
  const step = { saved, alive: INPUT, events: [], clock: 0, held, again: 0 };
  const bounds = [0, ...cuts, blocks];
  const last = bounds.length - 2;
  for (let segment = 0; segment < last; segment++) {
    for (let i = bounds[segment]; i < bounds[segment + 1]; i++) bare(step, i, bounds[segment]);
  }
  for (let i = bounds[last]; i < blocks; i++) forward(step, i);
  const top = step.events[step.events.length - 1];
  top.peak = Math.max(top.peak, step.alive + 1); // the loss
  for (let i = blocks - 1; i >= bounds[last]; i--) backward(step, i);
  for (let segment = last - 1; segment >= 0; segment--) {
    // The gradient of the segment's output takes the place of that output.
    step.held[bounds[segment + 1] - 1] = NOTHING;
    step.again += bounds[segment + 1] - bounds[segment];
    for (let i = bounds[segment]; i < bounds[segment + 1]; i++) forward(step, i, "again");
    step.alive -= BLOCK.output;
    for (let i = bounds[segment + 1] - 1; i >= bounds[segment]; i--) backward(step, i);
  }
  return {
    events: step.events,
    peak: Math.max(...step.events.map(({ peak }) => peak)),
    seconds: step.clock,
    again: step.again,
  };
}

function note(step, kind, block, above, change, seconds) {
  const [peak, begin] = [step.alive + above, step.clock];
  step.alive += change;
  step.clock += seconds;
  const [alive, end, held] = [step.alive, step.clock, [...step.held]];
  step.events.push({ kind, block, alive, peak, begin, end, held });
}

function bare(step, block, first) {
  if (block > first) step.held[block - 1] = NOTHING;
  step.held[block] = OUTPUT;
  const change = block > first ? 0 : BLOCK.output;
  note(step, "bare", block, BLOCK.bare, change, BLOCK.forward);
}

function forward(step, block, kind = "forward") {
  step.held[block] = ALL;
  note(step, kind, block, step.saved, step.saved, BLOCK.forward);
}

function backward(step, block) {
  step.held[block] = NOTHING;
  note(step, "backward", block, BLOCK.output + BLOCK.working, -step.saved, BLOCK.backward);
}

const peakOf = (blocks, cuts, saved) => account(blocks, cuts, saved).peak;

// Peaks with a checkpoint behind every 1, 2, ... blocks; the last of them has none.
function regularPeaks({ blocks, saved }) {
  return steps(1, blocks, 1).map((every) => peakOf(blocks, regular(blocks, every), saved));
}

// Distances of checkpoints with the lowest peak.
function answer(state) {
  const peaks = regularPeaks(state);
  const lowest = Math.min(...peaks);
  return steps(1, state.blocks, 1).filter((every) => peaks[every - 1] === lowest);
}

// The lowest peak of any placement. A segment behind s others finds s outputs kept, so that it may
// be shorter by as much: the longest that fit under a peak are tried for each peak.
function least({ blocks, saved }) {
  const found = steps(saved, saved * (blocks + 1), 1).map((room) => {
    const cuts = [];
    let end = 0;
    for (let kept = 0; end < blocks && kept < blocks; kept++) {
      end += Math.max(1, Math.floor((room - kept) / saved));
      if (end < blocks) cuts.push(end);
    }
    return peakOf(blocks, cuts, saved);
  });
  return Math.min(...found);
}

const cutsOf = (state) => state.own ?? regular(state.blocks, state.every);
const present = (state) => account(state.blocks, cutsOf(state), state.saved);

// Which event runs at this part of the step.
function eventAt({ events, seconds }, time) {
  return events.find(({ end }) => time * seconds < end) ?? events[events.length - 1];
}

// ---------------------------------------------------------------- in words

function inWords(state, now, plain) {
  const part = (now.peak / plain.peak).toFixed(2);
  const longer = (now.seconds / plain.seconds).toFixed(2);
  if (!now.again) return `No checkpoint: the peak is ${plain.peak} tensors.`;
  return (
    `Peak ${now.peak} tensors instead of ${plain.peak} (${part}×). ` +
    `${now.again} of ${state.blocks} blocks run forward again: the step takes ${longer}× the ` +
    `time. ${game(state, now.peak)}`
  );
}

// Which way the lowest peak lies.
function direction(state) {
  return state.every < Math.min(...answer(state))
    ? "Ends pile up: keep fewer of them."
    : "A piece that runs again is high: make it shorter.";
}

// The game: a lower peak than any regular distance has.
function game(state, peak) {
  const [goal, lowest] = [Math.min(...regularPeaks(state)), least(state)];
  const all = (2 ** (state.blocks - 1)).toLocaleString("en");
  if (!state.own) {
    if (peak > goal) return direction(state);
    if (goal === lowest) return `No placement is lower: the least of all ${all}.`;
    return `The lowest with equal distances. Click between blocks: can you beat ${goal}?`;
  }
  if (peak === lowest) return `★ ${peak} is the least: none of all ${all} placements is lower.`;
  if (peak < goal) return `You beat ${goal}, the best equal distance. The least of all is ${lowest}.`;
  return `To beat: ${goal}, the best equal distance.`;
}
