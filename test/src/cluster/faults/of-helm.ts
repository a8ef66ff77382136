import { install, rollback, serversByHelm, uninstall, useService } from '../helm.ts';
import type { Fault } from './fault.ts';

/** What `helm upgrade`, `rollback` and `uninstall` do to releases that callers use. */
export const OF_HELM: readonly Fault[] = [
  {
    name: 'helm upgrade: other values for gateways and hubs',
    commit: () => install('plane', 'operators=true'),
  },
  {
    name: 'helm upgrade: gateways and hubs scaled to 3, and to 2',
    async commit() {
      for (const replicas of [3, 2])
        await install('plane', `operators=true,gateway.replicas=${replicas},hub.replicas=${replicas}`);
    },
  },
  { name: 'helm rollback of gateways and hubs', commit: () => rollback('plane', 1) },
  { name: 'helm upgrade: other values for agents', commit: () => install('agent', 'agent.deletionCost=true') },
  {
    name: 'helm upgrade: agents on each node, and a few again',
    async commit() {
      await install('agent', 'agent.kind=DaemonSet');
      await install('agent');
    },
  },
  {
    name: 'helm uninstall, and install again',
    mayFail: /./,
    mayCut: true,
    async commit({ kubernetes }) {
      for (const component of ['agent', 'plane'] as const) await uninstall(component);
      for (const component of ['plane', 'agent'] as const) await install(component);
      await useService('plane', 'gateway', kubernetes);
    },
  },
  {
    name: 'servers in the place of the plane',
    mayFail: /./,
    mayCut: true,
    commit: ({ kubernetes }) => serversByHelm(kubernetes),
  },
  { name: 'helm upgrade: other values for servers', commit: () => install('server', 'operators=true') },
];
