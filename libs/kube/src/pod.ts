import { randomHex } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { type KubeClient, KubeStatusError } from './client.ts';
import { KUBE } from './defaults.ts';
import { periodic } from './lease.ts';

const COST = 'controller.kubernetes.io/pod-deletion-cost';

/** Whose value of the annotation it is, and whose event, to the API server. */
const FIELD_MANAGER = 'isthmus-agent';

export interface PodName {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export interface DeletionCostOptions {
  readonly client: KubeClient;
  readonly pod: PodName;
  /** How many tunnels would be cut with the pod. */
  readonly tunnels: () => number;
  /** Called once at most: why the cost is not kept. */
  readonly note: (message: string) => void;
}

/**
 * Keeps the pod's deletion cost in step with its tunnels, so that a scale-down takes the pod that has none. The cost is coarse: the largest
 * power of two that is no more than the tunnels. It is applied to the pod's status alone, because who may patch pods may change their images
 * too. The API server refuses it if another controller, or the pod's template, has set the annotation; then that value stays.
 */
export function deletionCost(options: DeletionCostOptions): AsyncDisposable {
  const { client, pod, tunnels, note } = options;
  const path = `/api/v1/namespaces/${pod.namespace}/pods/${pod.name}/status`;
  let written: string | undefined;
  let refused = false;
  const keep = async (signal: AbortSignal) => {
    const cost = costOf(tunnels());
    if (refused || cost === written) return KUBE.deletionCostMs;
    const metadata = { name: pod.name, annotations: { [COST]: cost } };
    const body = { apiVersion: 'v1', kind: 'Pod', metadata };
    await client.request({ method: 'PATCH', path, query: { fieldManager: FIELD_MANAGER }, body, signal });
    written = cost;
    return KUBE.deletionCostMs;
  };
  const failed = (error: unknown) => {
    // Anything else may pass: an API server that is away, or credentials that are being renewed.
    if (error instanceof KubeStatusError && [400, 403, 404, 409, 415, 422].includes(error.status)) {
      refused = true;
      note(`the pod's deletion cost is not kept: ${reasonOf(error)}`);
    }
    return KUBE.deletionCostMs;
  };
  return periodic(keep, failed);
}

function costOf(tunnels: number): string {
  return tunnels < 1 ? '0' : String(2 ** Math.min(30, Math.floor(Math.log2(tunnels))));
}

function reasonOf(error: KubeStatusError): string {
  if (error.status === 409) return `another controller sets ${COST}`;
  if (error.status === 403) return 'the agent may not patch pods/status in its namespace';
  return inWords(error);
}

/**
 * Writes a Kubernetes Event about the pod: its agent ends, and tunnels with it. `kubectl describe pod` and `kubectl events` show it for an hour.
 * Resolves within `KUBE.eventMs`, also if there is no Event: without the right to create events, nothing is said.
 */
export async function cutEvent(client: KubeClient, pod: PodName, agentId: string, tunnels: number): Promise<void> {
  const { namespace, name, uid } = pod;
  const now = new Date().toISOString();
  const one = tunnels === 1;
  const body = {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { namespace, name: `${name.slice(0, 200)}.${randomHex(8)}` },
    involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    type: 'Warning',
    reason: 'TunnelsCut',
    message: `${agentId} ended with ${tunnels} tunnel${one ? '' : 's'} open, which ${one ? 'was' : 'were'} cut: isthmus cuts says whose`,
    source: { component: FIELD_MANAGER },
    firstTimestamp: now,
    lastTimestamp: now,
    count: 1,
  };
  const path = `/api/v1/namespaces/${namespace}/events`;
  await client.request({ method: 'POST', path, body, signal: AbortSignal.timeout(KUBE.eventMs) }).catch(() => {});
}

/** Returns the pod that a token of a service account is bound to; undefined for any other token. */
export function podOf(token: string): PodName | undefined {
  try {
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());
    const { namespace, pod } = claims['kubernetes.io'];
    const { name, uid } = pod;
    return [namespace, name, uid].every((text) => typeof text === 'string') ? { namespace, name, uid } : undefined;
  } catch {
    return undefined;
  }
}
