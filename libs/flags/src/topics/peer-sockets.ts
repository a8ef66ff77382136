import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { FlagError } from '../error.ts';
import { string, topic, type Values } from '../flag.ts';
import { faultOfDirectory, faultOfSocketPath } from '../socket-path.ts';
import type { membership, tenants } from './plane.ts';

export const peerSockets = topic('Plane', {
  'peer-uds-dir': string(
    '',
    'Directory of unix sockets that link gateways and hubs on one machine without TLS. A process that can open a socket in it can dial, and one that can make files in it can pose as a hub. A hub that has no socket in it is reached over TLS.',
    { own: true },
  ),
});

/**
 * Returns the path of a hub's socket in --peer-uds-dir. It stands for the plane and for the address where gateways reach the hub over TLS, and
 * is short, as the path of a socket must be.
 */
export function hubSocket(flags: Pick<Flags, 'peer-uds-dir' | 'plane'>, peerAddress: string): string {
  const name = createHash('sha256').update(`${flags.plane} ${peerAddress}`).digest('hex').slice(0, 16);
  return join(flags['peer-uds-dir'], `${name}.sock`);
}

type Flags = Values<typeof peerSockets & typeof membership & typeof tenants>;

/** @param peerAddress of the hub in this program; unset for a gateway */
export function checkPeerSockets(flags: Flags, peerAddress?: string): void {
  const { 'peer-uds-dir': directory } = flags;
  if (directory === '') return;
  if (flags['redis-url'] === '') throw new FlagError('peer-uds-dir', 'has no effect without --redis-url');
  if (flags['tenants-dir'] !== '') {
    throw new FlagError(
      'peer-uds-dir',
      'cannot be combined with --tenants-dir: on a socket, no certificate says for which tenants a gateway may dial',
    );
  }
  const fault =
    peerAddress === undefined ? faultOfDirectory(directory) : faultOfSocketPath(hubSocket(flags, peerAddress));
  if (fault !== undefined) throw new FlagError('peer-uds-dir', fault);
}
