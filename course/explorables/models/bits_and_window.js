// 07: formats exactly, with rounding to the nearest, and gradients that were counted once.

// `top`: the largest exponent; `max`: the largest number; `full`: has no inf, and stays at `max`.
function format(exponent, fraction, torch, without = 0) {
  const top = 2 ** (exponent - 1) - 1 + without;
  const largest = (2 - 2 ** -fraction - (without ? 2 ** -fraction : 0)) * 2 ** top;
  const bottom = 2 - 2 ** (exponent - 1);
  return { exponent, fraction, torch, top, bottom, max: largest, full: without > 0 };
}

const FORMATS = {
  fp16: format(5, 10, "float16"),
  bf16: format(8, 7, "bfloat16"),
  fp32: format(8, 23, "float32"),
  e5m2: format(5, 2, "float8_e5m2"),
  // Its largest exponent holds numbers, too, all but nan.
  e4m3: format(4, 3, "float8_e4m3fn", 1),
};

// Gradients of activations of the panel's network by powers of two, the first from 2^-44 on: its
// loss counts 1e-5, ten batches of 64 behind 100 steps. Counted once, on a CPU.
const LEAST = -44;
const COUNTS = [
  2, 1, 3, 6, 15, 23, 48, 63, 137, 317, 672, 1404, 2587, 5060, 10054, 18778, 31396, 40654, 20222,
  1519, 312, 405,
];
const ALL = sum(COUNTS);

// The power of two at or below a number's size.
function power(x) {
  let found = Math.floor(Math.log2(Math.abs(x)));
  // A logarithm may round up.
  if (2 ** found > Math.abs(x)) found -= 1;
  return found;
}

// Distance of neighbours where x lies, on the side away from zero.
function gap(name, x) {
  const { bottom, fraction } = FORMATS[name];
  return 2 ** (Math.max(x === 0 ? bottom : power(x), bottom) - fraction);
}

// The number that the format stores for x: the nearest, of two the even one.
function rounded(name, x) {
  const { max, full } = FORMATS[name];
  if (x === 0 || Number.isNaN(x)) return x;
  if (Number.isFinite(x)) {
    const each = gap(name, x);
    const [low, rest] = [Math.floor(x / each), x / each - Math.floor(x / each)];
    const up = rest > 0.5 || (rest === 0.5 && low % 2 !== 0);
    const found = (low + (up ? 1 : 0)) * each;
    if (Math.abs(found) <= max) return found;
  }
  return Math.sign(x) * (full ? max : Infinity);
}

// Sign, exponent and fraction bits of a number of the format, as zeros and ones.
function bitsOf(name, x) {
  const { exponent, fraction, bottom, full } = FORMATS[name];
  const size = Math.abs(x);
  let [field, part] = [0, 0];
  if (!Number.isFinite(size)) {
    field = 2 ** exponent - 1;
    part = full ? 2 ** fraction - 1 : Number.isNaN(size) ? 2 ** (fraction - 1) : 0;
  } else if (size < 2 ** bottom) {
    part = size / 2 ** (bottom - fraction);
  } else {
    field = power(size) - bottom + 1;
    part = (size / 2 ** power(size) - 1) * 2 ** fraction;
  }
  const digits = (value, count) => [...value.toString(2).padStart(count, "0")].map(Number);
  return [x < 0 ? 1 : 0, ...digits(field, exponent), ...digits(part, fraction)];
}

// The number that bits mean.
function numberOf(name, bits) {
  const { exponent, fraction, bottom, full } = FORMATS[name];
  const whole = (some) => some.reduce((total, bit) => 2 * total + bit, 0);
  const [field, part] = [whole(bits.slice(1, 1 + exponent)), whole(bits.slice(1 + exponent))];
  const sign = bits[0] ? -1 : 1;
  if (field === 2 ** exponent - 1) {
    if (!full) return part ? NaN : sign * Infinity;
    if (part === 2 ** fraction - 1) return NaN;
  }
  if (field === 0) return sign * part * 2 ** (bottom - fraction);
  return sign * (1 + part / 2 ** fraction) * 2 ** (field - 1 + bottom);
}

// What becomes of gradients of this power: "zero", "few" (fewer digits), "kept" or "large".
function fate(name, exponent) {
  const { bottom, fraction, top } = FORMATS[name];
  if (exponent < bottom - fraction - 1) return "zero";
  if (exponent > top) return "large";
  return exponent < bottom ? "few" : "kept";
}

// How many of the gradients meet each fate at this scale, a power of two.
function fates({ format, scale }) {
  const found = { zero: 0, few: 0, kept: 0, large: 0 };
  COUNTS.forEach((count, i) => (found[fate(format, LEAST + i + scale)] += count));
  return found;
}

// A weight after so many updates, each of them rounded to the format.
function walked({ format, weight, update, times }) {
  let now = weight;
  for (let i = 0; i < times; i++) now = rounded(format, now + update);
  return now;
}

const BETS = [4, 12, 24, 44];
const OPENS = { format: "fp16", scale: 0, weight: 1, update: 0.003, times: 0 };

// The scales at which no gradient is lost.
function answer(state) {
  return BETS.filter((scale) => {
    const { zero, large } = fates({ ...state, scale });
    return zero + large === 0;
  });
}
