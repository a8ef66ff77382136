/** One line of a drawing. */
export interface Series {
  readonly name: string;
  /** In the order of `x`, which is greater than 0. */
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface Drawing {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly Series[];
}

const WIDTH = 640;
const HEIGHT = 320;
const PLOT = { left: 64, top: 44, right: 620, bottom: 264 };
const Y_STEPS = 4;

/** Distinguishable on white and on black, and with the most common forms of colour blindness (after Okabe and Ito). */
const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#8a8a00', '#56b4e9'];

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #888; stroke-opacity: .3 }
  @media (prefers-color-scheme: dark) { text { fill: #ccc } }
`;

/** Returns an SVG: a logarithmic x axis, as the points double or more; a linear y axis from 0, so that a bend shows as one. */
export function draw({ title, xLabel, yLabel, series }: Drawing): string {
  const all = series.flatMap(({ points }) => points);
  const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
  const top = roundUp(Math.max(0, ...all.map(([, y]) => y)));
  const [least = 1, most = 1] = [xs[0], xs.at(-1)];
  const span = Math.log(most / least) || 1;
  const x = (value: number) => round(PLOT.left + ((PLOT.right - PLOT.left) * Math.log(value / least)) / span);
  const y = (value: number) => round(PLOT.bottom - ((PLOT.bottom - PLOT.top) * value) / top);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(title)}">`,
    `<style>${STYLE}</style>`,
    `<text class="title" x="${PLOT.left}" y="18">${escaped(title)}</text>`,
    ...Array.from({ length: Y_STEPS + 1 }, (_, step) => horizontal((top * step) / Y_STEPS, y)),
    ...xs.map((value) => `<text x="${x(value)}" y="${PLOT.bottom + 18}" text-anchor="middle">${number(value)}</text>`),
    `<text x="${PLOT.right}" y="${PLOT.bottom + 36}" text-anchor="end">${escaped(xLabel)}</text>`,
    `<text x="${PLOT.left}" y="36">${escaped(yLabel)}</text>`,
    ...series.flatMap(({ name, points }, index) => {
      const colour = COLOURS[index % COLOURS.length];
      const path = points.map(([at, value]) => `${x(at)},${y(value)}`).join(' ');
      return [
        `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`,
        ...points.map(([at, value]) => `<circle cx="${x(at)}" cy="${y(value)}" r="3" fill="${colour}"/>`),
        ...legend(name, index, colour),
      ];
    }),
    '</svg>',
    '',
  ].join('\n');
}

function horizontal(value: number, y: (value: number) => number): string {
  const at = y(value);
  const line = `<line class="grid" x1="${PLOT.left}" x2="${PLOT.right}" y1="${at}" y2="${at}"/>`;
  return `${line}<text x="${PLOT.left - 8}" y="${at + 4}" text-anchor="end">${number(value)}</text>`;
}

function legend(name: string, index: number, colour: string | undefined): string[] {
  const left = PLOT.left + index * 150;
  const at = HEIGHT - 8;
  return [
    `<line x1="${left}" x2="${left + 18}" y1="${at - 4}" y2="${at - 4}" stroke="${colour}" stroke-width="2"/>`,
    `<text x="${left + 24}" y="${at}">${escaped(name)}</text>`,
  ];
}

/** Rounds up to a number that four steps divide well. */
function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 1.2, 1.6, 2, 3, 4, 6, 8].find((step) => step * power >= value) ?? 10);
}

function number(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
