import { type AddressInfo, connect, createServer } from 'node:net';
import { pipeline } from 'node:stream';
import type { Scope } from '../harness/index.ts';

/** A port of 127.0.0.1 that leads to each of these ports in turn and skips those where nobody listens, like a load balancer. */
export async function balancer(scope: Scope, ports: readonly number[]): Promise<number> {
  let turn = 0;
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (near) => {
    near.on('error', () => {});
    scope.defer(() => near.destroy());
    const first = turn++;
    const reach = (tried: number) => {
      const far = connect({ port: ports[(first + tried) % ports.length] as number, allowHalfOpen: true });
      const next = () => (tried + 1 < ports.length ? reach(tried + 1) : near.destroy());
      far.once('error', next);
      far.once('connect', () => {
        far.off('error', next);
        // A peer that was killed meanwhile has reset its side.
        if (near.destroyed) far.destroy();
        else pipeline(near, far, near, () => {});
      });
    };
    reach(0);
  });
  scope.defer(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}
