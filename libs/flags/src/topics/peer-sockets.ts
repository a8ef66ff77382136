import { statSync } from 'node:fs';
import { join } from 'node:path';
import { FlagError } from '../error.ts';
import { string, topic, type Values } from '../flag.ts';
import { faultOfSocketPath } from '../socket-path.ts';
import type { membership, tenants } from './plane.ts';

export const peerSockets = topic('Plane', {
  'peer-uds-dir': string(
    '',
    'Directory of unix sockets that link gateways and hubs on one machine without TLS. Whoever may open a socket in it may dial, and whoever may create one can pose as a hub. A hub that has no socket in it is reached over TLS.',
    { own: true },
  ),
});

/** Returns the path of a hub's socket in --peer-uds-dir. */
export function hubSocket(directory: string, hubId: string): string {
  return join(directory, `${encodeURIComponent(hubId)}.sock`);
}

type Flags = Values<typeof peerSockets & typeof membership & typeof tenants>;

/** @param hubId of the hub in this program; unset for a gateway */
export function checkPeerSockets(flags: Flags, hubId?: string): void {
  const { 'peer-uds-dir': directory } = flags;
  if (directory === '') return;
  if (flags['redis-url'] === '') throw new FlagError('peer-uds-dir', 'has no effect without --redis-url');
  if (flags['tenants-dir'] !== '') {
    throw new FlagError(
      'peer-uds-dir',
      'cannot be combined with --tenants-dir: a gateway shows no certificate there, so nothing says for which tenants it may dial',
    );
  }
  const fault = hubId === undefined ? faultOfDirectory(directory) : faultOfSocketPath(hubSocket(directory, hubId));
  if (fault !== undefined) throw new FlagError('peer-uds-dir', fault);
}

function faultOfDirectory(path: string): string | undefined {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ? undefined : `there is no directory ${path}`;
}
