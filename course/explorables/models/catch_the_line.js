// 23: a sampler looks at a running script, and counts the line that it is in.

// Of the files course/programs/train.py and digits.py; a test compares them.
const TEXTS = {
  19: "def __getitem__(self, i):",
  20: "    image = self.images[i] / self.images.max()",
  21: "    if torch.rand(()) < 0.5:",
  22: "        image = image.flip(-1)",
  23: "    return image, self.labels[i]",
  34: "def epoch():",
  35: "    losses, right = [], 0",
  36: "    for x, y in batches:",
  37: "        x, y = x.to(device), y.to(device)",
  38: "        scores = model(x)",
  39: "        loss = F.cross_entropy(scores, y)",
  40: "        loss.backward()",
  41: "        optimizer.step()",
  42: "        optimizer.zero_grad()",
  43: "        losses.append(loss.item())",
  44: "        right += sum(map(torch.eq, scores.argmax(1), y))",
};
const LINES = Object.keys(TEXTS).map(Number);
// What takes the place of a line that is mended.
const MENDED = {
  20: "    image = self.images[i] / 255",
  43: "        losses.append(loss.detach())",
  44: "        right += (scores.argmax(1) == y).sum()",
};
const SHIFT = "        image = image.roll(1, 1)";
const SCRIPTS = ["train.py", "digits.py"];
// Milliseconds of an epoch in each line, as it is and mended.
const TIMES = {
  "train.py": {
    ...{ 20: 74, 21: 10, 22: 2.5, 23: 1, 36: 10, 37: 0.6, 38: 23, 39: 2, 40: 37, 41: 8, 42: 1.5 },
    ...{ 43: 0.4, 44: 9 },
  },
  "digits.py": {
    ...{ 20: 7, 21: 5, 22: 1.3, 23: 0.4, 36: 3.8, 37: 0.1, 38: 20, 39: 1, 40: 40, 41: 5.3 },
    ...{ 42: 0.7, 43: 0.3, 44: 6 },
  },
};
const AFTER = {
  "train.py": { 20: 11, 43: 0.3, 44: 2.5 },
  "digits.py": { 20: 5.5, 43: 0.2, 44: 1 },
};
// Looks of a bet, and the most.
const [LOOKS, MOST] = [400, 800];
// Below this share of an epoch nobody sees that it is gone.
const LITTLE = 0.03;
const OPENS = { script: "train.py", mended: [], looks: 0 };

function textOf({ script, mended }, line) {
  if (mended.includes(line)) return MENDED[line];
  return script === "digits.py" && line === 22 ? SHIFT : TEXTS[line];
}

// Milliseconds of an epoch, one entry per line of LINES.
function times({ script, mended }) {
  const of = (line) => (mended.includes(line) ? AFTER : TIMES)[script][line] ?? 0;
  return LINES.map(of);
}

const epochOf = (state) => sum(times(state));

// Which looks hit which line: one count per line. Fewer looks are the first ones of more.
function counts(state) {
  const next = uniform(SCRIPTS.indexOf(state.script) + 10 * sum(state.mended) + 5);
  const whole = epochOf(state);
  const found = LINES.map(() => 0);
  for (let look = 0; look < state.looks; look++) {
    let left = whole * next();
    const hit = times(state).findIndex((time) => (left -= time) < 0);
    found[Math.max(0, hit)] += 1;
  }
  return found;
}

// The 95 % interval of a share that was counted.
function interval(count, looks) {
  const share = count / looks;
  const half = 1.96 * Math.sqrt((share * (1 - share)) / looks);
  return [Math.max(0, share - half), Math.min(1, share + half)];
}

// How many times as fast a program is without a share of its time: Amdahl's law.
const limit = (share) => 1 / (1 - share);

// How many times as fast, for the lines that are mended.
const gain = (state) => epochOf({ ...state, mended: [] }) / epochOf(state);

// The line that takes most of the time.
function answer(state) {
  const all = times(state);
  const most = Math.max(...all);
  return LINES.filter((line, i) => all[i] === most);
}

// A switch: the line is mended, or is as it was.
function toggle({ mended }, line) {
  const others = mended.filter((each) => each !== line);
  return { mended: others.length < mended.length ? others : [...mended, line].sort() };
}

// The result in words.
function inWords(state) {
  if (!state.looks) return "No look was taken yet: press Play.";
  if (!state.mended.length) return `${largest(state)} ${atMost(state)}`;
  const before = epochOf({ ...state, mended: [] }).toFixed(0);
  const after = epochOf(state).toFixed(0);
  const times = `${gain(state).toFixed(2)} times as fast`;
  const now = `Mended, an epoch takes ${after} instead of ${before} ms: ${times}.`;
  return `${now} ${worth(state)}${largest(state)}`;
}

// The line that most looks hit, and how sure that is.
function largest(state) {
  const found = counts(state);
  const most = Math.max(...found);
  const line = LINES[found.indexOf(most)];
  const [low, high] = interval(most, state.looks);
  const [share, half] = [most / state.looks, (high - low) / 2].map((part) => (100 * part).toFixed(0));
  return `${state.looks} looks: ${share} % in line ${line}, give or take ${half}.`;
}

function atMost(state) {
  const share = Math.max(...counts(state)) / state.looks;
  return `Without it an epoch would be ${limit(share).toFixed(1)} times as fast, and no more.`;
}

// The mended lines that bring nothing.
function worth(state) {
  const before = epochOf({ ...state, mended: [] });
  const brings = (line) => TIMES[state.script][line] - AFTER[state.script][line];
  const idle = state.mended.filter((line) => brings(line) < LITTLE * before);
  if (!idle.length) return "";
  return `Line ${idle.join(" and ")} was not worth it. `;
}
