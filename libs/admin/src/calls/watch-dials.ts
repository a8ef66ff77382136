import type { adminApi } from '@isthmus/proto/admin';
import { formatDestination } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { Watch } from './dial-watch.ts';
import { dialMessage, ROLES } from './messages.ts';
import { MAX_WATCHERS, type SeenDial, type SeenDials } from './recent-dials.ts';
import { exhausted, invalid } from './refusals.ts';

type Matches = (dial: SeenDial) => boolean;
type WatchRpc = Pick<adminApi.AdminServiceImplementation, 'watchDials'>;

export function watchRpc({ dials }: AdminBackend): WatchRpc {
  return {
    async *watchDials(request, { signal }) {
      const matches = filterOf(request);
      const watch = new Watch<SeenDial>();
      // Starts before the recent dials are read, so that events during their sending follow them.
      const end = request.recentOnly ? () => {} : begin(dials, matches, watch, request.firstBytes);
      try {
        const recent = [...dials].filter(matches);
        const most = Math.min(request.recent ?? recent.length, recent.length);
        for (const dial of recent.slice(recent.length - most)) {
          yield { dial: dialMessage(dial, request.phases), lost: 0n, recent: true };
        }
        if (request.recentOnly) return;
        for await (const { event, lost } of watch.until(signal)) {
          yield { dial: event && dialMessage(event, request.phases), lost: BigInt(lost), recent: false };
        }
      } finally {
        end();
      }
    },
  };
}

function begin(dials: SeenDials, matches: Matches, watch: Watch<SeenDial>, firstBytes: boolean): () => void {
  const end = dials.watch((dial, again) => {
    if ((!again || firstBytes) && matches(dial)) watch.tell(dial);
  });
  if (end) return end;
  const text = `too many clients watch this program's dials: ${MAX_WATCHERS} may, and those of one tenant as many as they leave to others`;
  throw exhausted(`${text}; stop one of them`);
}

function filterOf({ tenant, destination, onlyFailed, slowerThanMs, role }: adminApi.WatchDialsRequest): Matches {
  if (!(slowerThanMs >= 0)) throw invalid(`slower_than_ms is ${slowerThanMs}: want 0 or more`);
  const wanted: Matches[] = [];
  if (tenant !== '') wanted.push((dial) => dial.tenant === tenant);
  if (role !== 0) wanted.push((dial) => ROLES[dial.role] === role);
  if (onlyFailed) wanted.push(({ outcome }) => outcome?.error !== undefined);
  if (slowerThanMs > 0) wanted.push(({ outcome }) => outcome !== undefined && outcome.ms >= slowerThanMs);
  const lower = destination.toLowerCase();
  if (lower !== '') wanted.push((dial) => leadsTo(dial, lower));
  return (dial) => wanted.every((holds) => holds(dial));
}

/** @param wanted host:port, or a host with or without brackets, in lower case */
function leadsTo({ destination }: SeenDial, wanted: string): boolean {
  const host = destination.host.toLowerCase();
  return wanted === host || wanted === `[${host}]` || wanted === formatDestination(destination).toLowerCase();
}
