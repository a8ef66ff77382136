import { extended } from '@isthmus/runtime';
import { getOrPut } from '../get-or-put.ts';
import { ByteMeter } from '../limits/byte-meter.ts';
import { UNLIMITED } from '../limits/limits.ts';
import type { SpareBytes } from '../limits/spare-bytes.ts';
import type { Dial } from './dial.ts';

/** Meters the bytes of tunnels by tenant where nothing else is limited: at a hub, whose dials were admitted at a gateway. */
export function metered(dial: Dial, spare: SpareBytes): Dial {
  const tenants = new Map<string, { readonly meter: ByteMeter; tunnels: number }>();
  const now = () => performance.now();
  return async (request) => {
    const { tenant, resume } = request;
    const established = await dial(request);
    const { stream } = established.end;
    // An attach brings no new end: the tunnel is metered already.
    if (stream.closed || (resume?.attach && resume.carry)) return established;
    const of = getOrPut(tenants, tenant, () => ({
      meter: new ByteMeter(tenant, () => UNLIMITED, now, spare.tenant()),
      tunnels: 0,
    }));
    of.tunnels++;
    stream.once('close', () => {
      if (--of.tunnels === 0) tenants.delete(tenant);
    });
    return extended(established, { meter: of.meter });
  };
}
