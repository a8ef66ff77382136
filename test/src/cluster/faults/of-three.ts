import { until } from '../../harness/index.ts';
import { CONTROL_PLANES, type ControlPlane, SOCKET } from '../control-planes.ts';
import { killStatic, nextStatic } from '../kubernetes.ts';
import { HOLDER } from '../recipe.ts';
import { manifestOf, readPod } from '../static-pods.ts';
import { API_SERVER, apiServerReady, SERVER } from '../three.ts';
import { change, putAnp } from '../upstream.ts';
import type { Fault } from './fault.ts';
import { agentDeleted, agentsRolled } from './faults.ts';

const API_SERVER_MS = 180_000;

/** What is done to three control planes: a server beside each API server. */
export const OF_THREE: readonly Fault[] = [
  agentsRolled,
  agentDeleted,
  {
    name: 'each server changed, one after the other',
    async commit() {
      for (const { suffix } of CONTROL_PLANES) {
        const pod = readPod(manifestOf(`${SERVER}${suffix}`));
        await change({ ...pod, metadata: { ...pod.metadata, annotations: { changed: `${Date.now()}` } } });
      }
    },
  },
  {
    name: 'each server SIGKILLed, one after the other',
    async commit({ load }) {
      for (const { suffix } of CONTROL_PLANES) {
        const name = `${SERVER}${suffix}`;
        await nextStatic(name, await load.strike(() => killStatic(name)));
      }
    },
  },
  {
    name: 'each API server SIGKILLed, one after the other',
    mayCut: true,
    async commit({ load }) {
      for (const { address, suffix } of CONTROL_PLANES) {
        const name = `${API_SERVER}${suffix}`;
        await nextStatic(name, await load.strike(() => killStatic(name)));
        await until(() => apiServerReady(address), {
          what: `the API server at ${address}`,
          deadline: API_SERVER_MS,
        });
      }
    },
  },
];

let putBack: Awaited<ReturnType<typeof putAnp>> = async () => {};

/** Back to ANP and to Isthmus again, on one of the three. There are agents of both kinds. */
export const ONE_OF_THREE: readonly Fault[] = [
  {
    name: 'one of three servers: Isthmus to ANP',
    mayCut: true,
    mayCutAdmissions: true,
    async commit({ load }) {
      const { suffix } = CONTROL_PLANES.at(-1) as ControlPlane;
      const pods = [`${SERVER}${suffix}`, `${HOLDER}${suffix}`] as const;
      putBack = await putAnp(...pods, `${SOCKET}${suffix}`, (end) => load.strike(end));
    },
  },
  {
    name: 'one of three servers: ANP to Isthmus',
    mayCut: true,
    mayCutAdmissions: true,
    commit: ({ load }) => putBack((end) => load.strike(end)),
  },
];
