import { adviceFor } from '@isthmus/findings';
import { dialLine, traceLink } from '../model/dial-line.ts';
import type { SeenDial } from '../model/feed.ts';
import { clock, millis, shown } from '../model/text.ts';
import { CopyLine } from '../parts/copy.tsx';
import { Waterfall } from '../parts/waterfall.tsx';
import type { Settings } from '../settings.ts';
import { ownAddress } from './view.ts';

/** One dial: where its time went, the line that repeats it, its trace. */
export function DialDetail({
  seen: { member, dial },
  settings,
  close,
}: {
  readonly seen: SeenDial;
  readonly settings: Settings;
  readonly close: () => void;
}) {
  const trace = traceLink(settings.traceUrl, dial.traceId);
  return (
    <aside class="detail" aria-label={`Dial to ${shown(dial.destination)}`}>
      <h3>
        {shown(dial.destination)}, {millis(dial.ms)}
      </h3>
      <p>
        Dial {shown(dial.dialId)} of tenant {shown(dial.tenant)} at {clock(dial.startedMs)}, by{' '}
        {dial.caller === '' ? 'an unknown caller' : shown(dial.caller)}
        {dial.via !== '' && ` (${shown(dial.via)})`}.
        {trace !== undefined && (
          <>
            {' '}
            <a href={trace} target="_blank" rel="noopener noreferrer">
              Its trace
            </a>
          </>
        )}
        {trace === undefined && dial.traceId !== '' && ` Trace ${dial.traceId}.`}
      </p>
      {dial.error && (
        <p class="fault">
          {shown(dial.error.code)}: {shown(dial.error.text, 500)}
        </p>
      )}
      {dial.error && <p class="todo">→ {adviceFor(dial.error.code)}</p>}
      <Waterfall phases={dial.phases} failed={dial.error !== undefined} />
      <CopyLine line={dialLine(dial, { address: ownAddress(), gateway: member })} />
      <p class="buttons">
        <a href={`#/why/${encodeURIComponent(dial.destination)}/${encodeURIComponent(dial.tenant)}`}>Why this way?</a>
        <button type="button" onClick={close}>
          Close
        </button>
      </p>
    </aside>
  );
}
