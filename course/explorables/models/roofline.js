// 06: a linear layer under the roofs of two number formats.

// Peaks in operations per second, bandwidth in bytes per second: published, not measured.
const MACHINES = {
  avx2: {
    label: "CPU without bf16, 2 cores",
    source:
      "2 cores at 3 GHz with AVX2: 32 operations per clock and core; " +
      "memory DDR4-3200, two channels; bf16 is emulated, assumed 10 times slower",
    bandwidth: 51.2e9,
    peak: { fp32: 0.192e12, bf16: 0.0192e12 },
  },
  amx: {
    label: "CPU with bf16 (AMX), 2 cores",
    source:
      "2 cores at 2.5 GHz, Intel's figures per clock and core: 64 operations with AVX-512, " +
      "1,024 in bf16 with AMX; memory DDR5-4800, one channel",
    bandwidth: 38.4e9,
    peak: { fp32: 0.32e12, bf16: 5.12e12 },
  },
  gpu8: {
    label: "8 GB GPU (RTX 3070)",
    source: "NVIDIA's GA102 white paper, RTX 3070, sums in fp32",
    bandwidth: 448e9,
    peak: { fp32: 20.3e12, bf16: 40.6e12 },
  },
  h100: {
    label: "H100",
    source:
      "NVIDIA's H100 SXM data sheet, without sparsity; fp32 without TF32, as PyTorch's default",
    bandwidth: 3350e9,
    peak: { fp32: 67e12, bf16: 989e12 },
  },
};
const BYTES = { fp32: 4, bf16: 2 };
const FORMATS = ["fp32", "bf16"];
const WIDTHS = steps(6, 14, 0.25).map((power) => Math.round(2 ** power));
const OPENS = { machine: "gpu8", width: 64, rows: 1024, fixed: 10e-6 };
// The widths of the bet, and the speed-up that it asks for.
const BETS = [128, 256, 512, 1024];
const ENOUGH = 1.5;

// One product of (rows x width) with (width x width). Seconds, operations, bytes.
function layer({ machine, format, width, rows, fixed }) {
  const { peak, bandwidth } = MACHINES[machine];
  const work = 2 * rows * width * width;
  const bytes = BYTES[format] * (width * width + 2 * rows * width);
  const [arithmetic, memory] = [work / peak[format], bytes / bandwidth];
  const useful = Math.max(arithmetic, memory);
  const longer = arithmetic > memory ? "arithmetic" : "memory";
  return {
    seconds: fixed + useful,
    limit: fixed > useful ? "fixed cost" : longer,
    intensity: work / bytes,
    rate: work / (fixed + useful),
    roof: work / useful,
  };
}

function speedup(state, width) {
  const [full, half] = FORMATS.map((format) => layer({ ...state, width, format }));
  return full.seconds / half.seconds;
}

// The narrowest width of the bet that gains enough on the machine of the question.
const answer = () => BETS.filter((width) => speedup(OPENS, width) >= ENOUGH).slice(0, 1);
