// 23: a game of ten timelines of host and device. The reader says what slows each program down.

const ROUNDS = 10;
const STEPS = 8;
// Milliseconds by which the host may be ahead: its queue is full.
const QUEUE = 30;
const PARTS = ["forward", "backward", "update"];
const FAULTS = ["data", "read", "launch", "update", "none"];
// Savings below this share of a step are none; those above this part of the largest are as good.
const [LEAST, NEAR] = [0.08, 0.9];
const OPENS = { game: 147, round: 0, shown: 3, marks: [] };

// Milliseconds: `load` a batch, `launch` an operator on the host, `work` on one on the device,
// by part; `operators` of each part; `reads`: the host waits for the device after each part.
const HEALTHY = {
  load: 1,
  launch: 0.4,
  work: [2, 2, 2],
  operators: [4, 6, 2],
  reads: false,
};

// `size` from 1 to 5 is how bad it is.
const PLANT = {
  data: (size) => ({ load: 18 + 6 * size }),
  read: (size) => ({ launch: 0.6 + 0.3 * size, reads: true }),
  launch: (size) => ({
    launch: 0.5 + 0.1 * size,
    work: [0.3, 0.3, 0.3],
    operators: [16, 24, 8],
  }),
  update: (size) => ({ work: [1.2, 1.2, 0.1], operators: [4, 6, 40 + 8 * size] }),
  none: () => ({}),
};

// Each leaves the device's work as it is.
const MEND = {
  data: () => ({ load: HEALTHY.load }),
  read: () => ({ reads: false }),
  launch: ({ work, operators }) => fused(work, operators, [4, 4, 1]),
  update: ({ work, operators }) => fused(work, operators, [1, 1, operators[2]]),
};

function fused(work, operators, by) {
  return {
    work: work.map((each, part) => each * by[part]),
    operators: operators.map((count, part) => count / by[part]),
  };
}

const program = (fault, size) => ({ ...HEALTHY, ...PLANT[fault](size) });
const mended = (fault, given) => ({ ...given, ...MEND[fault](given) });

// A program that is `by` times as slow in everything.
function slower(given, by) {
  const { load, launch, work } = given;
  return { ...given, load: load * by, launch: launch * by, work: work.map((each) => each * by) };
}

// The programs of a game: each fault twice, in random order.
function deal(game) {
  const next = uniform(game);
  const faults = [...FAULTS, ...FAULTS];
  for (let last = faults.length - 1; last > 0; last--) {
    const other = Math.floor(next() * (last + 1));
    [faults[last], faults[other]] = [faults[other], faults[last]];
  }
  return faults.map((fault) => {
    const size = 1 + Math.floor(5 * next());
    return slower(program(fault, size), 0.7 + 0.8 * next());
  });
}

const current = (state) => deal(state.game)[state.round];

// Everything that happens: [lane, part, step, begin, end], lane "host" or "device".
function timeline({ load, launch, work, operators, reads }) {
  const blocks = [];
  let [host, device] = [0, 0];
  for (let step = 0; step < STEPS; step++) {
    blocks.push(["host", "data", step, host, host + load]);
    host += load;
    operators.forEach((count, part) => {
      for (let i = 0; i < count; i++) {
        blocks.push(["host", PARTS[part], step, host, host + launch]);
        host += launch;
        const begin = Math.max(device, host);
        device = begin + work[part];
        blocks.push(["device", PARTS[part], step, begin, device]);
      }
      if (reads && device > host) {
        blocks.push(["host", "waits", step, host, device]);
        host = device;
      }
    });
    if (device - host > QUEUE) {
      blocks.push(["host", "queue", step, host, device - QUEUE]);
      host = device - QUEUE;
    }
  }
  return blocks;
}

// Milliseconds of a step, and the share of it in which the device works, once the queue is full.
function summary(blocks) {
  const ends = steps(0, STEPS - 1, 1).map((step) =>
    Math.max(...blocks.filter((block) => block[2] === step).map((block) => block[4])),
  );
  const step = (ends[STEPS - 1] - ends[STEPS - 4]) / 3;
  const works = blocks.filter(([lane, , number]) => lane === "device" && number >= STEPS - 3);
  return { step, busy: sum(works.map(([, , , begin, end]) => end - begin)) / 3 / step };
}

const stepOf = (given) => summary(timeline(given)).step;

// The share of a step that each remedy saves.
function savings(given) {
  const whole = stepOf(given);
  return Object.keys(MEND).map((fault) => [fault, 1 - stepOf(mended(fault, given)) / whole]);
}

// The right answers: the faults whose remedy saves the most.
function answer(state) {
  const saved = savings(current(state));
  const most = Math.max(...saved.map(([, share]) => share));
  if (most < LEAST) return ["none"];
  return saved.filter(([, share]) => share >= NEAR * most).map(([fault]) => fault);
}
