import { LEASES } from './checks/leases.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import { TOKENS } from './checks/tokens.ts';
import { BESIDE_ANP, OF_THE_PLANE, OF_THE_SERVER } from './faults/faults.ts';
import { installByHelm, OF_HELM } from './helm.ts';
import { fromManagementCluster } from './hoster.ts';
import { oneAddress } from './one-address.ts';
import { AGENTS_BACK_AND_FIRST, kubernetesIosPage, leavePage, SERVER_BACK, SERVER_FIRST, THEN_AGENTS } from './page.ts';
import { applyPlane, speakHttpConnect } from './recipe.ts';
import { restartApiServer } from './static-pods.ts';
import type { Check, Plan } from './step.ts';
import { OF_THREE, ONE_OF_THREE, threeControlPlanes } from './three.ts';
import type { WayName } from './way.ts';

export const PLANS: Readonly<Record<WayName, Plan>> = {
  // The recipe that the cluster came up with.
  grpc: async () => [...OPERATIONS, METRICS, TOKENS, ...OF_THE_SERVER, ...BESIDE_ANP],
  async connect() {
    await speakHttpConnect();
    await restartApiServer();
    return [...OPERATIONS, METRICS, ...OF_THE_SERVER, ...BESIDE_ANP];
  },
  async page() {
    await kubernetesIosPage();
    return [
      ...SERVER_FIRST,
      ...over('server Isthmus, agents ANP', OPERATIONS),
      ...THEN_AGENTS,
      ...over("kubernetes.io's page", OPERATIONS),
      ...SERVER_BACK,
      ...over('server ANP, agents Isthmus', OPERATIONS),
      ...AGENTS_BACK_AND_FIRST,
      METRICS,
    ];
  },
  async mtls({ directory }) {
    await leavePage();
    await applyPlane(directory);
    await restartApiServer();
    return [...OPERATIONS, METRICS, ...OF_THE_PLANE];
  },
  async helm() {
    await installByHelm();
    return [METRICS, ...OF_HELM];
  },
  async ha(ground) {
    await leavePage();
    await threeControlPlanes(ground);
    return [...OPERATIONS, METRICS, ...OF_THREE, ...LEASES, ONE_OF_THREE];
  },
  'one-address': oneAddress,
  hoster: fromManagementCluster,
};

/** The same checks, by names that tell them from others. */
function over(what: string, checks: readonly Check[]): Check[] {
  return checks.map(({ name, run }) => ({ name: `${name} (${what})`, run }));
}
