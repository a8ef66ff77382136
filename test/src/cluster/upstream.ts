import { readFileSync } from 'node:fs';
import { containerOf, endStatic, nextStatic } from './kubernetes.ts';
import { EGRESS } from './recipe.ts';
import { ANP_VERSION } from './settings.ts';
import { manifestOf, readPod, type StaticPod, writePod } from './static-pods.ts';

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

/** Puts ANP's server in the place of ours and of what holds its socket, both static pods. @returns what puts them back */
export async function putAnp(server: string, holder: string): Promise<() => Promise<void>> {
  const [ours, held] = [server, holder].map((name) => readPod(manifestOf(name))) as [StaticPod, StaticPod];
  const anps = ofAnp(ours);
  // Ours tells the two protocols apart by a connection's first bytes.
  if (/HTTPConnect/.test(readFileSync(EGRESS, 'utf8'))) anps.spec.containers[0].args?.push('--mode=http-connect');
  await change(anps, () => endStatic(holder));
  return async () => {
    await change(ours);
    writePod(held);
    await nextStatic(holder, '');
  };
}

/** Has the kubelet run another form of a static pod, and waits until that is ready, and until what is done meanwhile is. */
export async function change(pod: StaticPod, meanwhile: () => Promise<void> = async () => {}): Promise<void> {
  const { name } = pod.metadata;
  const before = await containerOf(name);
  writePod(pod);
  await Promise.all([meanwhile(), nextStatic(name, before)]);
}
