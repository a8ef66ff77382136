import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../harness/index.ts';
import { SOCKET } from './control-planes.ts';
import { EGRESS } from './recipe.ts';
import { ANP_VERSION } from './settings.ts';
import {
  containerOf,
  donePod,
  endStatic,
  kill,
  manifestOf,
  nextStatic,
  readPod,
  removePod,
  type StaticPod,
  type Strike,
  uidOf,
  writePod,
} from './static-pods.ts';

/** The kubelet notices a changed manifest within 20 s, if not at once. */
const LEAVES_MS = 30_000;

/** Flags of the recipes that ANP's server does not have; and one with which it is ready only once it has agents of the first of its strategies. */
const OWN = [
  'proxy-strategies',
  'admin-uds-name',
  'admin-server-cert',
  'admin-server-key',
  'admin-ca-cert',
  'dial-park-timeout',
  'shutdown-delay-duration',
  'log-format',
];

/** Returns the name of ANP's image of its server or agent. */
export function anpImage(program: 'server' | 'agent'): string {
  return `registry.k8s.io/kas-network-proxy/proxy-${program}:${ANP_VERSION}`;
}

/** Returns the same server with ANP's image, on the API server's own socket, without the flags that only ours has. */
export function ofAnp(pod: StaticPod): StaticPod {
  const copy = structuredClone(pod);
  const [container] = copy.spec.containers;
  container.image = anpImage('server');
  container.command = ['/proxy-server'];
  container.args = (container.args ?? [])
    .filter((flag) => !OWN.some((own) => flag.startsWith(`--${own}=`)))
    .map((flag) => flag.replace('/proxy-server.socket', '/konnectivity-server.socket'));
  return copy;
}

/**
 * Puts ANP's server in the place of ours and of what holds its socket, both static pods.
 * @param directory of the API server's socket
 * @returns what puts them back
 */
export async function putAnp(
  server: string,
  holder: string,
  directory = SOCKET,
  strike: Strike = (kill) => kill(),
): Promise<(strike?: Strike) => Promise<void>> {
  const [ours, held] = [server, holder].map((name) => readPod(manifestOf(name))) as [StaticPod, StaticPod];
  const anps = ofAnp(ours);
  // Ours tells the two protocols apart by a connection's first bytes.
  if (/HTTPConnect/.test(readFileSync(EGRESS, 'utf8'))) anps.spec.containers[0].args?.push('--mode=http-connect');
  const uid = await uidOf(server);
  removePod(server);
  await donePod(uid);
  await strike(() => endStatic(holder));
  writePod(anps);
  await nextStatic(server, '');
  return async (strike) => {
    await endServer(server, directory, strike);
    for (const pod of [ours, held]) writePod(pod);
    for (const name of [server, holder]) await nextStatic(name, '');
  };
}

/**
 * Ends a server for another make of it: recipes/kubernetes-io, "From ANP's server". By the page's flags, ours ends at once. ANP's takes its socket away
 * when it is told to end, and then waits for its sessions until the kubelet kills it, after 30 s; an API server waits no longer, and webhooks
 * 10 s, so it is killed. The next manifest comes once this has returned.
 * @param directory of its socket
 */
export async function endServer(name: string, directory: string, strike: Strike = (kill) => kill()): Promise<void> {
  const [before, uid] = [await containerOf(name), await uidOf(name)];
  const socket = join(directory, 'konnectivity-server.socket');
  await strike(async () => {
    removePod(name);
    await until(() => !existsSync(socket), { what: `the end of ${socket}`, deadline: LEAVES_MS });
    await kill(before);
  });
  await donePod(uid);
}
