import { type KubeClient, KubeStatusError } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import type { Connected } from './member.ts';
import type { Verdict } from './sync.ts';

interface Condition {
  readonly type: 'Accepted' | 'Connected';
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
}

/** The status of a `Tenant` object. */
export interface TenantStatus extends Partial<Connected> {
  readonly tenant?: string;
  readonly from?: string;
  readonly observedGeneration?: number;
  readonly conditions?: readonly Condition[];
}

const GROUP = '/apis/isthmus.dev/v1alpha1';
export const MANAGER = 'isthmus-tenants-sync';

/**
 * Returns what an object's status is to be.
 * @param before as the object has it
 * @param connected what the plane says of the tenant; undefined if no member has answered
 */
export function statusOf(
  { source, tenant, from, fault, kept }: Verdict,
  connected: Connected | undefined,
  before: TenantStatus,
  now: string,
): TenantStatus {
  const { generation: observedGeneration } = source;
  const condition = (
    type: Condition['type'],
    status: Condition['status'],
    reason: string,
    message: string,
  ): Condition => {
    const last = before.conditions?.find((each) => each.type === type);
    const lastTransitionTime = last?.status === status ? last.lastTransitionTime : now;
    return { type, status, reason, message, observedGeneration, lastTransitionTime };
  };
  const stays = kept ? '. The last good state stays in force' : '';
  const accepted =
    fault === undefined
      ? condition('Accepted', 'True', 'InForce', 'The spec is in force')
      : condition('Accepted', 'False', 'Refused', `${fault}${stays}`);
  return {
    ...(tenant === '' ? before.tenant !== undefined && { tenant: before.tenant } : { tenant }),
    from,
    observedGeneration,
    ...(connected ?? numbersOf(before)),
    conditions: [accepted, connected ? connection(connected, condition) : unknown(before, condition)],
  };
}

type Make = (type: Condition['type'], status: Condition['status'], reason: string, message: string) => Condition;

function connection({ agents, sessions, hubs }: Connected, make: Make): Condition {
  const message = `${agents} agents with ${sessions} sessions at ${hubs} hubs`;
  return agents > 0
    ? make('Connected', 'True', 'Agents', message)
    : make('Connected', 'False', 'NoAgents', 'No agent is connected');
}

/** While no member answers, what was known stays. */
function unknown({ conditions = [] }: TenantStatus, make: Make): Condition {
  const last = conditions.find(({ type }) => type === 'Connected');
  return last ?? make('Connected', 'Unknown', 'NotAsked', 'No member of the plane has answered yet');
}

function numbersOf({ agents, sessions, hubs, callers }: TenantStatus): Partial<Connected> {
  return JSON.parse(JSON.stringify({ agents, sessions, hubs, callers }));
}

/** Whether two statuses say the same, whatever the order of their fields. */
function isSame(one: TenantStatus, other: TenantStatus): boolean {
  return canonical(one) === canonical(other);
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, each) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  );
}

export interface StatusOptions {
  /** Its rate bounds how much is written. */
  readonly client: KubeClient;
  /** The status of an object as the API server has it. */
  readonly known: (name: string) => TenantStatus | undefined;
  readonly failed: (error: Error) => void;
}

/** Writes the status of `Tenant` objects where it says something else. */
export class StatusWriter {
  readonly #options: StatusOptions;
  /** By object of which the API server has not kept all that was written: a definition of an earlier version lacks fields. */
  readonly #written = new Map<string, { readonly sent: TenantStatus; readonly kept: TenantStatus }>();

  constructor(options: StatusOptions) {
    this.#options = options;
  }

  /** @param connected by tenant; undefined if no member has answered */
  async write(
    verdicts: Iterable<Verdict>,
    connected: ReadonlyMap<string, Connected> | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { known } = this.#options;
    const now = new Date().toISOString().replace(/\.\d+Z$/, 'Z');
    const writes: (() => Promise<void>)[] = [];
    for (const verdict of verdicts) {
      const { kind, namespace, name } = verdict.source;
      if (kind !== 'Tenant') continue;
      const before = known(`${namespace}/${name}`) ?? {};
      const said = connected && (connected.get(verdict.tenant) ?? NOBODY);
      const status = statusOf(verdict, said, before, now);
      const last = this.#written.get(`${namespace}/${name}`);
      const stands = last && isSame(last.sent, status) && isSame(last.kept, before);
      if (!stands && !isSame(before, status)) writes.push(() => this.#put(namespace, name, status, signal));
    }
    const next = async () => {
      for (let write = writes.shift(); write && !signal.aborted; write = writes.shift()) await write();
    };
    await Promise.all(Array.from({ length: SYNC.statusesAtOnce }, next));
  }

  async #put(namespace: string, name: string, status: TenantStatus, signal: AbortSignal): Promise<void> {
    const path = `${GROUP}/namespaces/${namespace}/tenants/${name}/status`;
    const body = { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', metadata: { namespace, name }, status };
    const query = { fieldManager: MANAGER };
    try {
      const call = { method: 'MERGE', path, query, body, signal } as const;
      const { status: kept = {} } = await this.#options.client.request<{ readonly status?: TenantStatus }>(call);
      if (isSame(kept, status)) this.#written.delete(`${namespace}/${name}`);
      else this.#written.set(`${namespace}/${name}`, { sent: status, kept });
    } catch (error) {
      // It was deleted meanwhile.
      if (error instanceof KubeStatusError && error.status === 404) return;
      this.#options.failed(error as Error);
    }
  }
}

const NOBODY: Connected = { agents: 0, sessions: 0, hubs: 0, callers: 0 };
