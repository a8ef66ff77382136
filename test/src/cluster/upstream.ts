import { ANP_VERSION } from './settings.ts';
import type { StaticPod } from './static-pods.ts';

/** Flags of the recipes that ANP's server does not have. */
const OWN = [
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

/** Returns the same server with ANP's image, without the flags that only ours has. */
export function ofAnp(pod: StaticPod): StaticPod {
  const copy = structuredClone(pod);
  const [container] = copy.spec.containers;
  container.image = anpImage('server');
  container.command = ['/proxy-server'];
  container.args = (container.args ?? []).filter((flag) => !OWN.some((own) => flag.startsWith(`--${own}=`)));
  return copy;
}
