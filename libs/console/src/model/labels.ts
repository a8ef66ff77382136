/** A line of a picture, from its one end to the other. */
export interface Line {
  readonly x1: number;
  readonly y1: number;
  readonly x2: number;
  readonly y2: number;
}

/** The room of a label. */
interface Size {
  readonly width: number;
  readonly height: number;
  /** Between it and the middle of its line. */
  readonly gap: number;
}

/** A label's room, around its centre. */
interface Box extends Size {
  readonly x: number;
  readonly y: number;
}

/** Parts of a line at which its label is tried, the best first: in the middle, most lines cross. */
const PLACES = [0.3, 0.4, 0.22, 0.5, 0.6, 0.7, 0.15, 0.8];

/**
 * Puts a label beside each line, where it stands on no line and no other label. Where all have one, it is the place with the fewest.
 * @param sizes of the labels, by line
 * @returns their centres
 */
export function placeLabels(
  lines: readonly Line[],
  sizes: readonly Size[],
): { readonly x: number; readonly y: number }[] {
  const placed: Box[] = [];
  for (const [index, line] of lines.entries()) {
    const size = sizes[index] ?? { width: 0, height: 0, gap: 0 };
    const boxes = PLACES.flatMap((at) => besides(line, at, size));
    const inTheWay = (box: Box) =>
      lines.filter((each) => crosses(each, box)).length + placed.filter((each) => overlap(each, box)).length;
    const counts = boxes.map(inTheWay);
    placed.push(boxes[counts.indexOf(Math.min(...counts))] as Box);
  }
  return placed.map(({ x, y }) => ({ x, y }));
}

/** The boxes on either side of a line that just clear it. */
function besides({ x1, y1, x2, y2 }: Line, at: number, size: Size): Box[] {
  const long = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [across, down] = [(y2 - y1) / long, (x1 - x2) / long];
  const away = (size.width / 2) * Math.abs(across) + (size.height / 2) * Math.abs(down) + size.gap;
  return [1, -1].map((side) => {
    return { ...size, x: x1 + (x2 - x1) * at + side * away * across, y: y1 + (y2 - y1) * at + side * away * down };
  });
}

function overlap(a: Box, b: Box): boolean {
  return Math.abs(a.x - b.x) * 2 < a.width + b.width && Math.abs(a.y - b.y) * 2 < a.height + b.height;
}

/** Whether a line runs through a box: it does where its ways across both pairs of sides have a part in common. */
function crosses({ x1, y1, x2, y2 }: Line, { x, y, width, height }: Box): boolean {
  const way = (from: number, to: number, centre: number, room: number): readonly [number, number] => {
    if (from === to) return Math.abs(from - centre) < room / 2 ? [0, 1] : [1, 0];
    const ends = [(centre - room / 2 - from) / (to - from), (centre + room / 2 - from) / (to - from)];
    return [Math.min(...ends), Math.max(...ends)];
  };
  const [[left, right], [top, bottom]] = [way(x1, x2, x, width), way(y1, y2, y, height)];
  return Math.max(0, left, top) < Math.min(1, right, bottom);
}
