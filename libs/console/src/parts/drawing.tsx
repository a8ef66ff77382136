import { type Line, placeLabels } from '../model/labels.ts';
import { short } from '../model/text.ts';
import { type Tone, toned } from './text.tsx';

/** A process in a picture. */
interface Box {
  readonly key: string;
  /** Of its middle. */
  readonly x: number;
  readonly y: number;
  readonly name: string;
  /** A second line. */
  readonly note?: string;
  readonly tone: Tone;
  readonly style?: 'broken' | 'heavy' | undefined;
}

/** What leads from one box to another. */
interface Way extends Line {
  readonly key: string;
  readonly tone: Tone;
  readonly width: number;
  readonly broken?: boolean;
  readonly label?: string;
}

interface DrawingProps {
  readonly name: string;
  readonly title: string;
  readonly width: number;
  readonly height: number;
  /** Of each box. */
  readonly size: { readonly width: number; readonly height: number };
  readonly boxes: readonly Box[];
  readonly ways: readonly Way[];
}

/** Of a label, in the picture's units: its font is of 14. */
const LABEL = { character: 8, height: 16, gap: 3 };

/** Characters of a name: a table beside the picture has all of it. */
const NAME = 18;

/** Boxes, ways between them, and beside each way its label. */
export function Drawing({ name, title, width, height, size, boxes, ways }: DrawingProps) {
  const labels = placeLabels(
    ways,
    ways.map(({ label = '', width: thick }) => {
      return { width: label.length * LABEL.character, height: LABEL.height, gap: LABEL.gap + thick / 2 };
    }),
  );
  return (
    <svg class={name} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
      {ways.map(({ key, tone, width: thick, broken, x1, y1, x2, y2 }) => (
        <line
          key={key}
          class={broken ? 'broken' : ''}
          style={toned(tone)}
          stroke-width={thick}
          {...{ x1, y1, x2, y2 }}
        />
      ))}
      {ways.map(({ key, tone, label }, index) => (
        <text key={key} class="label" style={toned(tone)} {...labels[index]}>
          {label}
        </text>
      ))}
      {boxes.map(({ key, x, y, name: text, note, tone, style = '' }) => (
        <g
          key={key}
          class={`box ${style}`}
          style={toned(tone)}
          transform={`translate(${x - size.width / 2} ${y - size.height / 2})`}
        >
          <rect {...size} rx={6} />
          <text x={size.width / 2} y={note === undefined ? size.height / 2 + 5 : 19}>
            {short(text, NAME)}
          </text>
          {note !== undefined && (
            <text class="small" x={size.width / 2} y={37}>
              {note}
            </text>
          )}
        </g>
      ))}
    </svg>
  );
}
