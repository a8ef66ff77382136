import type { adminApi } from '@isthmus/proto/admin';
import { isoTime } from '../output/json.ts';

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
