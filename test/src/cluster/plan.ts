import type { Check } from './checks/check.ts';
import { LEASES } from './checks/leases.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import { TOKENS } from './checks/tokens.ts';
import { BESIDE_ANP, OF_THE_PLANE, OF_THE_SERVER } from './faults/faults.ts';
import { AGENTS_BACK_AND_FIRST, SERVER_BACK, SERVER_FIRST, THEN_AGENTS } from './faults/migration.ts';
import { OF_HELM } from './faults/of-helm.ts';
import { OF_THREE, ONE_OF_THREE } from './faults/of-three.ts';
import type { Plan } from './ground.ts';
import { installByHelm } from './helm.ts';
import { fromManagementCluster } from './hoster.ts';
import { oneAddress } from './one-address.ts';
import { kubernetesIosPage, leavePage } from './page.ts';
import { applyPlane, speakHttpConnect, useGateways } from './recipe.ts';
import { threeControlPlanes } from './three.ts';
import type { WayName } from './way.ts';

export const PLANS: Readonly<Record<WayName, Plan>> = {
  grpc: {
    // The recipe that the cluster came up with.
    async prepare() {},
    steps: [...OPERATIONS, ...METRICS, ...TOKENS, ...OF_THE_SERVER, ...BESIDE_ANP],
  },
  connect: {
    async prepare({ kubernetes }) {
      await speakHttpConnect();
      await kubernetes.restartApiServer();
    },
    steps: [...OPERATIONS, ...METRICS, ...OF_THE_SERVER, ...BESIDE_ANP],
  },
  page: {
    prepare: ({ kubernetes }) => kubernetesIosPage(kubernetes),
    steps: [
      ...SERVER_FIRST,
      ...over('server Isthmus, agents ANP', OPERATIONS),
      ...THEN_AGENTS,
      ...over("kubernetes.io's page", OPERATIONS),
      ...SERVER_BACK,
      ...over('server ANP, agents Isthmus', OPERATIONS),
      ...AGENTS_BACK_AND_FIRST,
      ...METRICS,
    ],
  },
  mtls: {
    async prepare({ kubernetes, directory }) {
      await leavePage();
      await applyPlane(directory);
      await useGateways(directory);
      await kubernetes.restartApiServer();
    },
    steps: [...OPERATIONS, ...METRICS, ...OF_THE_PLANE],
  },
  helm: {
    prepare: ({ kubernetes }) => installByHelm(kubernetes),
    steps: [...METRICS, ...OF_HELM],
  },
  ha: {
    async prepare({ scope, kubernetes }) {
      await leavePage();
      await threeControlPlanes(scope, kubernetes);
    },
    steps: [...OPERATIONS, ...METRICS, ...OF_THREE, ...LEASES, ...ONE_OF_THREE],
  },
  'one-address': oneAddress(),
  hoster: fromManagementCluster(),
};

/** The same checks, by names that tell them from others. */
function over(what: string, checks: readonly Check[]): Check[] {
  return checks.map(({ name, run }) => ({ name: `${name} (${what})`, run }));
}
