import { kubeClient, kubeconfigFile } from '@isthmus/kube';
import { getOrPut, printable, Semaphore, within } from '@isthmus/runtime';
import { formatDestination, inWords, parseDestination } from '@isthmus/tunnel';
import { ADMISSION } from './defaults.ts';
import type { Tenant, Tenants } from './tenants.ts';

/** Targets with the same labels, as Prometheus' HTTP service discovery has them. */
export interface TargetGroup {
  /** `host:port` each. */
  readonly targets: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

interface ScrapeTargetsOptions {
  readonly tenants: Pick<Tenants, 'all' | 'get'>;
  /** A path in a tenant's file as an absolute one. */
  readonly path: (named: string) => string;
}

/**
 * What tenants' files have Prometheus scrape. Nodes are listed when somebody asks, at most every `nodesMs` for each API server, and an answer has
 * the last list: an API server that fails or hangs delays no other tenant's targets, and takes away none of its own.
 */
export class ScrapeTargets {
  readonly #options: ScrapeTargetsOptions;
  readonly #lists = new Map<string, NodeList>();
  readonly #looks = new Semaphore(ADMISSION.nodeLooks, ADMISSION.nodeLooksOfTenant);
  readonly #closing = new AbortController();

  constructor(options: ScrapeTargetsOptions) {
    this.#options = options;
  }

  /**
   * The targets of one tenant, or of all. Undefined while nodes of the one have never been listed, or nodes of any have yet to be looked at:
   * who has an older answer keeps it. One API server that fails takes nothing from the answer for all but its own nodes.
   */
  async of(name?: string): Promise<TargetGroup[] | undefined> {
    const { tenants } = this.#options;
    const asked = name === undefined ? [...tenants.all] : [tenants.get(name)].filter((found) => found !== undefined);
    const lists = asked.flatMap((tenant) => this.#listsOf(tenant));
    const first = this.#look(lists);
    if (first.length > 0) await within(Promise.all(first), ADMISSION.nodesFirstMs);
    if (lists.some(({ nodes, failure }) => !nodes && (name !== undefined || failure === undefined))) return undefined;
    return asked.flatMap((tenant) => this.#groups(tenant));
  }

  /** Why nodes could not be listed the last time, by the place in a tenant's file. */
  get failures(): string[] {
    return [...this.#lists.values()].flatMap(({ rule, failure }) =>
      failure === undefined ? [] : `${rule}: ${failure}`,
    );
  }

  /** Forgets the lists of tenants that have changed or are gone, but what a file still names. */
  forget(names: readonly string[]): void {
    const changed = new Set(names);
    const kept = new Set(names.flatMap((name) => this.#options.tenants.get(name) ?? []).flatMap(keysOf));
    for (const [key, { tenant }] of this.#lists) if (changed.has(tenant) && !kept.has(key)) this.#lists.delete(key);
  }

  close(): void {
    this.#closing.abort();
  }

  #listsOf(tenant: Tenant): NodeList[] {
    return (tenant.file.scrape ?? []).flatMap(({ nodes }, index) => {
      if (!nodes) return [];
      const key = keyOf(tenant, nodes.kubeconfig);
      const rule = `${tenant.path}: scrape[${index}].nodes.kubeconfig`;
      const kubeconfig = this.#options.path(nodes.kubeconfig);
      const fresh = () => ({ tenant: tenant.name, rule, kubeconfig, lookedAt: Number.NEGATIVE_INFINITY });
      return getOrPut(this.#lists, key, fresh);
    });
  }

  /** Starts to list what is due. Those that failed the last time come last. @returns what ends with lists that there are none of yet */
  #look(lists: readonly NodeList[]): Promise<void>[] {
    const due = [...new Set(lists)].filter(({ looking, lookedAt }) => {
      return !looking && performance.now() - lookedAt >= ADMISSION.nodesMs;
    });
    for (const list of due.sort((a, b) => Number(a.failure !== undefined) - Number(b.failure !== undefined))) {
      list.looking = this.#looks
        .take(() => look(list, this.#closing.signal), list.tenant)
        .finally(() => {
          list.lookedAt = performance.now();
          list.looking = undefined;
        });
    }
    return lists.flatMap(({ looking, lookedAt }) => (looking && lookedAt === Number.NEGATIVE_INFINITY ? looking : []));
  }

  #groups(tenant: Tenant): TargetGroup[] {
    return (tenant.file.scrape ?? []).flatMap(({ job, targets, nodes, path }) => {
      const labels = {
        // Through an HTTP proxy, Prometheus asks for a tunnel only with https.
        __scheme__: 'https',
        ...(path !== undefined && { __metrics_path__: path }),
        __meta_isthmus_tenant: tenant.name,
        __meta_isthmus_job: job,
      };
      if (targets) return [{ targets, labels }];
      const list = nodes && this.#lists.get(keyOf(tenant, nodes.kubeconfig));
      return (list?.nodes ?? []).map(({ name, kubelet }) => {
        return { targets: [kubelet], labels: { ...labels, __meta_isthmus_node: name } };
      });
    });
  }
}

function keyOf({ name }: Tenant, kubeconfig: string): string {
  return JSON.stringify([name, kubeconfig]);
}

function keysOf(tenant: Tenant): string[] {
  return (tenant.file.scrape ?? []).flatMap(({ nodes }) => (nodes ? keyOf(tenant, nodes.kubeconfig) : []));
}

interface KnownNode {
  readonly name: string;
  /** `host:port` */
  readonly kubelet: string;
}

/** The nodes that one API server lists. */
interface NodeList {
  readonly tenant: string;
  /** `acme.yaml: scrape[0].nodes.kubeconfig` */
  readonly rule: string;
  readonly kubeconfig: string;
  /** Unset until the first look that succeeds. */
  nodes?: readonly KnownNode[];
  /** Why the last look failed. */
  failure?: string | undefined;
  /** When the last look ended. */
  lookedAt: number;
  looking?: Promise<void> | undefined;
}

/** Lists the nodes. Never rejects: without an answer, the last list stays. */
async function look(list: NodeList, closing: AbortSignal): Promise<void> {
  try {
    const signal = AbortSignal.any([closing, AbortSignal.timeout(ADMISSION.nodesLookMs)]);
    list.nodes = await listed(list.kubeconfig, signal);
    list.failure = undefined;
  } catch (error) {
    list.failure = inWords(error).slice(0, ADMISSION.quoteCharacters);
  }
}

interface NodesPage {
  readonly items?: readonly NodeObject[];
  readonly metadata?: { readonly continue?: string };
}

/** Asks an API server for its nodes, page by page. The connection ends with it: the next look is `nodesMs` later at the earliest. */
async function listed(kubeconfig: string, signal: AbortSignal): Promise<KnownNode[]> {
  const options = { qps: -1, timeoutMs: ADMISSION.nodesCallMs, answerBytes: ADMISSION.nodesPageBytes };
  using client = await kubeClient({ source: kubeconfigFile(kubeconfig), ...options });
  const found: KnownNode[] = [];
  let next = '';
  do {
    const query = { limit: String(ADMISSION.nodesAPage), ...(next !== '' && { continue: next }) };
    const page = await client.request<NodesPage>({ method: 'GET', path: '/api/v1/nodes', query, signal });
    found.push(...(page.items ?? []).flatMap(knownNode));
    if (found.length > ADMISSION.nodes) throw new Error(`it lists more than ${ADMISSION.nodes} nodes`);
    next = page.metadata?.continue ?? '';
  } while (next !== '');
  return found;
}

/** A node, of which an API server may leave out anything. */
interface NodeObject {
  readonly metadata?: { readonly name?: string };
  readonly status?: {
    readonly addresses?: readonly { readonly type?: string; readonly address?: string }[];
    readonly daemonEndpoints?: { readonly kubeletEndpoint?: { readonly Port?: number } };
  };
}

/** In the order of Prometheus' own discovery of nodes. */
const ADDRESS_TYPES = ['InternalIP', 'InternalDNS', 'ExternalIP', 'ExternalDNS', 'Hostname'];

/** Where a node's kubelet listens; nothing for a node without an address, or with one that cannot be dialled. */
function knownNode({ metadata, status }: NodeObject): KnownNode[] {
  const { addresses = [], daemonEndpoints } = status ?? {};
  const host = ADDRESS_TYPES.map((wanted) => addresses.find(({ type }) => type === wanted)?.address).find(Boolean);
  if (host === undefined) return [];
  const kubelet = formatDestination({ host, port: daemonEndpoints?.kubeletEndpoint?.Port ?? KUBELET_PORT });
  try {
    parseDestination(kubelet);
    return [{ name: printable(metadata?.name ?? '').slice(0, ADMISSION.quoteCharacters), kubelet }];
  } catch {
    return [];
  }
}

const KUBELET_PORT = 10_250;
