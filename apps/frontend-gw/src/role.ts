import type { GatewayValues } from '@isthmus/flags';
import type { Gateway, GatewayParts } from '@isthmus/plane';
import { gateway } from './gateway.ts';
import { gatewayOptions } from './options.ts';

/** Runs a gateway from a program's flags. */
export async function gatewayRole(flags: GatewayValues, { closing, ...parts }: GatewayParts): Promise<Gateway> {
  const { tenancy } = parts;
  const running = await gateway({
    ...gatewayOptions(flags),
    ...parts,
    ...(tenancy && { limits: tenancy.limits }),
  });
  closing.defer(running.close);
  return running;
}
