import type { adminApi } from '@isthmus/proto/admin';
import { isoTime } from '../output/json.ts';
import { age } from '../output/units.ts';

/** Who a member refused at one of its ports, for one reason. */
export interface RefusalView {
  readonly where: string;
  readonly remote: string;
  readonly reason: string;
  readonly count: number;
  readonly last: string;
  /** Since the last one, by the member's clock. */
  readonly agoMs: number;
}

export function refusalViews({ refusals, nowMs }: adminApi.GetStatusResponse): RefusalView[] {
  return refusals.map(({ where, remote, reason, count, lastMs }) => {
    const agoMs = Math.max(0, Number(nowMs - lastMs));
    return { where, remote, reason, count: Number(count), last: isoTime(lastMs), agoMs };
  });
}

/** `10.0.0.7:40312, 14 times, the last 3s ago: certificate has expired` */
export function refusalText({ remote, reason, count, agoMs }: RefusalView): string {
  const often = count === 1 ? '' : `${count} times, the last `;
  return `${remote || 'an unknown address'}, ${often}${age(agoMs)} ago: ${reason}`;
}
