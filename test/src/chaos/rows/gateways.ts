import type { Member } from '../../harness/index.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Row } from '../row.ts';

/** How soon both ends of its tunnels end, in milliseconds. */
const ENDS_WITHIN = 100;

const killed: Row<Plane> = {
  name: 'gateway-kill',
  fault: 'gateway SIGKILL',
  holds: 'dials through the other gateway unaffected; callers and destinations told within 100 ms',
  bounds: { callersEndMs: ENDS_WITHIN, destinationsEndMs: ENDS_WITHIN },
  topology: (scope) => startPlane(scope),
  async inject({ plane, strike, hold }) {
    const [gateway] = plane.gateways as [Member];
    await strike({ takes: (carried) => carried.gateway === 0, gateway: 0 }, () => gateway.kill());
    await hold(20_000, 3000);
    await gateway.restart();
  },
};

export const gatewayRows: readonly Row<Plane>[] = [killed];
