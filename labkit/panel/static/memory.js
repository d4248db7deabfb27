// The chart of a step's memory: what is alive when, of both sides on one scale.

const bytes = (size) => {
  const units = ["B", "KiB", "MiB", "GiB"];
  const power = Math.min(3, Math.max(0, Math.floor(Math.log2(size || 1) / 10)));
  return `${+(size / 1024 ** power).toPrecision(3)} ${units[power]}`;
};

function drawMemory(canvas, state) {
  const sheet = paper(canvas);
  if (!sheet) return;
  const { width, height, colour, ink } = sheet;
  const sides = state.timelines ?? [];
  const tall = height - 18;
  // Beside each other where there is room, else below each other.
  const wide = width > 560;
  const boxes = wide
    ? [[0, 0, width / 2 - 8, tall], [width / 2 + 8, 0, width / 2 - 8, tall]]
    : [[0, 0, width, tall / 2 - 4], [0, tall / 2 + 4, width, tall / 2 - 4]];
  const guessed = state.guess && sides[0] ? state.guess * Math.max(...floats(sides[0].alive)) : 0;
  // A wild guess must not flatten the curves.
  const most = Math.max(state.unit ?? 1, Math.min(guessed, 2 * (state.unit ?? 1))) * 1.12;
  sides.forEach((side, number) => {
    const expected = number && guessed > 0 && guessed <= most ? guessed : 0;
    drawSide(sheet, side, number, boxes[number], most, expected, state);
  });
  ink.textAlign = "left";
  ink.fillStyle = colour("faint");
  ink.fillText("Bytes alive after each operator of one step; dark: there before it", 4, height - 6);
}

function drawSide(sheet, side, number, [across, down, wide, tall], most, expected, state) {
  const { ink, colour } = sheet;
  const [left, right, top, bottom] = [across + 58, across + wide - 6, down + 22, down + tall - 4];
  const alive = floats(side.alive);
  const x = (part) => left + (right - left) * part;
  const y = (size) => bottom - ((bottom - top) * size) / most;
  const hue = colour(number ? "candidate" : "baseline");
  ink.textAlign = "right";
  for (const tick of [0, most / 2.24, most / 1.12]) {
    ink.fillStyle = colour("faint");
    ink.fillText(tick ? bytes(tick) : "0", left - 6, y(tick));
    ink.fillStyle = colour("line");
    ink.fillRect(left, y(tick) - 0.5, right - left, 1);
  }
  ink.textAlign = "left";
  ink.fillStyle = colour("text");
  ink.fillText(number ? "Candidate" : "Baseline", left, down + 8);

  const steps = Array.from(alive).flatMap((size, i) => {
    return [[x(i / alive.length), y(size)], [x((i + 1) / alive.length), y(size)]];
  });
  ink.fillStyle = hue;
  ink.globalAlpha = 0.3;
  ink.beginPath();
  [[left, bottom], ...steps, [right, bottom]].forEach(([a, b]) => ink.lineTo(a, b));
  ink.fill();
  ink.globalAlpha = 0.45;
  ink.fillRect(left, y(side.before), right - left, bottom - y(side.before));
  ink.globalAlpha = 1;
  ink.strokeStyle = hue;
  ink.lineWidth = 1.5;
  line(ink, steps);
  ink.lineWidth = 1;
  drawParts(sheet, side.parts, x, top, bottom, right);
  if (alive.length) {
    const highest = Math.max(...alive);
    ink.fillStyle = hue;
    ink.beginPath();
    ink.arc(x(side.at), y(highest), 3.5, 0, 7);
    ink.fill();
    ink.textAlign = side.at > 0.5 ? "right" : "left";
    const beside = x(side.at) + (side.at > 0.5 ? -8 : 8);
    label(sheet, side.most, beside, y(highest) - 7, colour("text"));
    ink.textAlign = "left";
  }
  if (expected) drawGuess(sheet, state, [[left, y(expected)], [right, y(expected)]]);
}

// Forward, backward, optimizer: a thin line where each begins, and its name where there is room.
function drawParts({ ink, colour }, parts, x, top, bottom, right) {
  parts.forEach(([begin, name], i) => {
    const end = i + 1 < parts.length ? x(parts[i + 1][0]) : right;
    if (i) {
      ink.fillStyle = colour("line");
      ink.fillRect(x(begin), top, 1, bottom - top);
    }
    ink.fillStyle = colour("faint");
    if (ink.measureText(name).width + 6 < end - x(begin)) {
      ink.fillText(name, x(begin) + 4, bottom - 8);
    }
  });
}
