import type { HubValues } from '@isthmus/flags';
import type { Hub, HubParts } from '@isthmus/plane';
import { hub } from './hub.ts';
import { hubOptions, kubernetes } from './options.ts';

/** Runs a hub from a program's flags. */
export async function hubRole(flags: HubValues, { closing, leases, warn, ...parts }: HubParts): Promise<Hub> {
  const cluster = await kubernetes(flags, closing, warn);
  const { directory } = parts;
  const running = await hub({
    ...hubOptions(flags, cluster.authenticate),
    ...parts,
    manyTenants: parts.tenancy !== undefined,
    // A gateway in this process learns of its hub's sessions before the registry does.
    changed: (change) => directory.ownHub !== undefined && directory.apply(change),
  });
  closing.defer(() => running.close());
  cluster.holdLease(leases);
  return running;
}
