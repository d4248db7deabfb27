// 16, the model: ten calls that make a tensor of NumPy's numbers, and where a write lands.

const CELLS = 12;
const WRITTEN = 99;
// A cell that nothing is written into.
const NONE = -1;
const FATES = { shared: "shared", copied: "a copy", error: "an error" };
const WHOLE = { start: 0, shape: [12], strides: [1] };
// `a` has the numbers 0 to 11 in float32, `frozen` too, read-only. `source` is what the call gets:
// numbers from cell `start` on; `strides`: cells from one number to the next, along each axis.
const CARDS = [
  {
    code: "torch.as_tensor(a[::2])",
    source: "a[::2]",
    what: "every second number of a",
    start: 0,
    shape: [6],
    strides: [2],
    fate: "shared",
    why: "A tensor has strides as an array has: it steps over every second cell",
  },
  {
    code: "torch.as_tensor([a[:6], a[6:]])",
    source: "[a[:6], a[6:]]",
    what: "a list of two arrays",
    header: "two of them, in a list: cells 0 to 5, cells 6 to 11",
    start: 0,
    shape: [2, 6],
    strides: [6, 1],
    fate: "copied",
    why: "A list has no block of numbers to lend, so it is read number by number",
  },
  {
    code: "torch.as_tensor(a.reshape(3, 4).T)",
    source: "a.reshape(3, 4).T",
    what: "three rows of four numbers, with rows and columns exchanged",
    start: 0,
    shape: [4, 3],
    strides: [1, 4],
    fate: "shared",
    why: "Exchanging rows and columns only exchanges the strides",
  },
  {
    code: "torch.as_tensor(a[::-1])",
    source: "a[::-1]",
    what: "the numbers of a from the last to the first",
    start: 11,
    shape: [12],
    strides: [-1],
    fate: "error",
    why: "A tensor has no negative strides. torch.tensor fails, too; a[::-1].copy() helps",
  },
  {
    code: "torch.as_tensor(a, dtype=torch.float64)",
    source: "a",
    what: "the numbers of a, 8 bytes each instead of 4",
    ...WHOLE,
    fate: "copied",
    why: "Another type is other bits, so each number is written anew",
  },
  {
    code: "torch.from_numpy(a)",
    source: "a",
    what: "another function, for arrays only",
    ...WHOLE,
    fate: "shared",
    why: "from_numpy shares, or ends in an error; it never copies",
  },
  {
    code: 'torch.as_tensor(a, device="cuda")',
    source: "a",
    what: "on a machine with an NVIDIA GPU",
    ...WHOLE,
    fate: "copied",
    why: "A GPU has memory of its own",
  },
  {
    code: "torch.as_tensor(frozen)",
    source: "frozen",
    what: "an array that is read-only, as from a file that is mapped into memory",
    ...WHOLE,
    fate: "shared",
    readOnly: true,
    why: "PyTorch warns, once, and shares: a tensor cannot be read-only. Write as the tensor",
  },
  {
    code: 'torch.as_tensor(a.astype(">f4"))',
    source: 'a.astype(">f4")',
    what: "the bytes of each number in the other order, as some file formats have them",
    ...WHOLE,
    fate: "error",
    why: "PyTorch has no type for this byte order; .astype(np.float32) helps",
  },
  {
    code: "torch.tensor(a)",
    source: "a",
    what: "the other function of the claim",
    ...WHOLE,
    fate: "copied",
    why: "torch.tensor always copies",
  },
];

const OPENS = { card: 0, cell: NONE, by: "array", marks: [] };
const current = ({ card }) => CARDS[card];

// What a bet can be, of which one is right.
const answer = (state) => [current(state).fate];

// The cells that a card's array reads, in its order.
function cellsOf({ start, shape, strides }) {
  let found = [start];
  shape.forEach((count, axis) => {
    found = found.flatMap((first) => steps(0, count - 1, 1).map((i) => first + i * strides[axis]));
  });
  return found;
}

// Both memories behind a write, and what both names read. `own`: the tensor's own memory, or null;
// `landed`: the memory that was written into, "tape" or "own", or null.
function memory(state) {
  const card = current(state);
  const cells = cellsOf(card);
  const tape = steps(0, CELLS - 1, 1);
  const own = card.fate === "copied" ? cells.map((cell) => tape[cell]) : null;
  const landed = target(state, cells);
  if (landed) ({ tape, own })[landed][state.cell] = WRITTEN;
  const array = cells.map((cell) => tape[cell]);
  const tensor = { shared: array, copied: own, error: null }[card.fate];
  return { tape, own, array, tensor, landed };
}

// The memory that a write through a name lands in; null where the name has no such cell.
function target(state, cells) {
  const { fate, readOnly } = current(state);
  if (state.cell === NONE) return null;
  if (state.by === "tensor") {
    if (fate === "copied") return state.cell < cells.length ? "own" : null;
    return fate === "shared" && cells.includes(state.cell) ? "tape" : null;
  }
  return !readOnly && cells.includes(state.cell) ? "tape" : null;
}

// The first bet on a card counts, unless the answer was seen before.
function mark({ card, marks }, right, seen) {
  if (marks.length > card) return {};
  const skipped = Array(card - marks.length).fill(null);
  return { marks: [...marks, ...skipped, seen ? null : right] };
}

// The next card, or a new game behind the last one.
function advance({ card, marks }) {
  if (card === CARDS.length - 1) return { ...OPENS };
  return { card: card + 1, cell: NONE, by: "array", marks };
}

function score({ card, marks }) {
  const right = marks.filter(Boolean).length;
  if (card < CARDS.length - 1) return `${right} of ${card + 1} right.`;
  const rank = right === CARDS.length ? " ★ You know whose memory it is." : "";
  return `The game ends with ${right} of ${CARDS.length} right.${rank}`;
}

// What the write did to the other name.
function effect(state) {
  const { source, fate, readOnly } = current(state);
  if (state.cell === NONE) {
    return `Now write into a cell: ${fate === "error" ? "there is one name only." : "who reads it?"}`;
  }
  const { landed } = memory(state);
  const old = state.cell;
  if (fate === "error" && state.by === "tensor") return "There is no tensor to write through.";
  if (!landed && readOnly && state.by === "array") return "NumPy refuses: the array is read-only.";
  if (!landed) return `Cell ${old} is none of its numbers: nothing is written.`;
  if (fate === "error") return `${source} reads ${WRITTEN}.`;
  if (landed === "own") return `The tensor reads ${WRITTEN}; the array keeps its ${old}.`;
  if (fate === "copied") return `The array reads ${WRITTEN}; the tensor keeps its ${old}.`;
  if (state.by === "array") return "You wrote as the array, and the tensor has changed.";
  return "You wrote as the tensor, and the array has changed: so would a data set.";
}

function inWords(state) {
  return `${current(state).why}. ${effect(state)} ${score(state)}`;
}
