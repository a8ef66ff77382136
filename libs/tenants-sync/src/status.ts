import { isDeepStrictEqual } from 'node:util';
import { type KubeClient, KubeStatusError, objectName } from '@isthmus/kube';
import { ENDING, fileName } from './compose.ts';
import { SYNC } from './defaults.ts';
import type { Connected, PlaneSays } from './member.ts';
import type { Verdict } from './sync.ts';

interface Condition {
  readonly type: string;
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

/** What the API server has of an object. */
export interface ToldStatus {
  readonly status: TenantStatus;
  /** The object's `resourceVersion`. */
  readonly version: string;
}

/** Stands for a status that is too long. A merge patch takes back what is null, unless it is said anew; what it always says is not here. */
const TAKEN_BACK = { tenant: null, agents: null, sessions: null, hubs: null, callers: null } as unknown as TenantStatus;

/** What counts of a status, which others may write too: of one that is too long, nothing. */
export function countedStatus(status: TenantStatus): TenantStatus {
  return JSON.stringify(status).length > SYNC.statusCharacters ? TAKEN_BACK : status;
}

const GROUP = '/apis/isthmus.dev/v1alpha1';
export const MANAGER = 'isthmus-tenants-sync';

/** What of a tenant is known beside the verdict. */
export interface Said {
  /** What the plane says of it; undefined if no member has answered. */
  readonly connected?: Connected | undefined;
  /** What is wrong with its file at members; empty if nothing is; undefined if none has answered since they have the file. */
  readonly fault?: string | undefined;
  /** What became of its ClusterProfile; undefined if that is not known. */
  readonly access?: Access | undefined;
}

/** What became of a tenant's ClusterProfile: `none` if there is none now. */
export type Access = 'published' | 'none' | { readonly fault: string };

/** What a condition says; undefined if there is to be none. */
type Finding = Pick<Condition, 'status' | 'reason' | 'message'> | undefined;

/**
 * Returns what an object's status is to be. While nobody says something else, what was known stays, and what others put there always.
 * @param before as the object has it
 */
export function statusOf(verdict: Verdict, said: Said, before: TenantStatus, now: string): TenantStatus {
  const { tenant, from, source } = verdict;
  const { generation: observedGeneration } = source;
  const { conditions = [] } = before;
  const last = (type: string) => conditions.find((each) => each.type === type);
  const findings: Readonly<Record<string, Finding>> = {
    Accepted: accepted(verdict, said, last('Accepted')),
    Connected: said.connected ? connection(said.connected) : (last('Connected') ?? NOT_ASKED),
    [PUBLISHED]: said.access === undefined ? last(PUBLISHED) : publication(said.access),
  };
  const ours = Object.entries(findings).flatMap(([type, finding]) => {
    if (!finding) return [];
    const { status, reason, message } = finding;
    const lastTransitionTime = last(type)?.status === status ? (last(type)?.lastTransitionTime ?? now) : now;
    return { type, status, reason, message, observedGeneration, lastTransitionTime };
  });
  const others = conditions.filter(({ type }) => !(type in findings));
  const named = tenant === '' ? {} : { tenant };
  return { ...before, ...named, from, observedGeneration, ...said.connected, conditions: [...ours, ...others] };
}

const PUBLISHED = 'Published';

const NOT_ASKED: Finding = {
  status: 'Unknown',
  reason: 'NotAsked',
  message: 'No member of the plane has answered yet',
};

/** @param last what was said before: until a member says more, what members said of the same spec stays */
function accepted({ fault, kept, source }: Verdict, said: Said, last: Condition | undefined): Finding {
  const stays = kept ? '. The last good state stays in force' : '';
  if (fault !== undefined) return { status: 'False', reason: 'Refused', message: `${fault}${stays}` };
  if (said.fault) return { status: 'False', reason: AT_MEMBERS, message: said.fault };
  const same = last?.observedGeneration === source.generation;
  if (said.fault === undefined && same && last?.reason === AT_MEMBERS) return last;
  return { status: 'True', reason: 'InForce', message: 'The spec is in force' };
}

/** Why a spec is not accepted that passes the check of files: members say what is wrong with it where they are. */
const AT_MEMBERS = 'AtMembers';

function connection({ agents, sessions, hubs }: Connected): Finding {
  if (agents === 0) return { status: 'False', reason: 'NoAgents', message: 'No agent is connected' };
  const message = `${agents} agents with ${sessions} sessions at ${hubs} hubs`;
  return { status: 'True', reason: 'Agents', message };
}

function publication(access: Access): Finding {
  if (access === 'none') return undefined;
  if (access === 'published') return { status: 'True', reason: 'Written', message: 'The ClusterProfile is written' };
  return { status: 'False', reason: 'Refused', message: access.fault };
}

/** Whether it says that a ClusterProfile was published, or was to be. */
export function isPublished({ conditions = [] }: TenantStatus): boolean {
  return conditions.some(({ type }) => type === PUBLISHED);
}

export interface StatusOptions {
  /** Its rate bounds how much is written. */
  readonly client: KubeClient;
  /** The status of an object as the API server has it; undefined if the object is gone. */
  readonly known: (name: string) => ToldStatus | undefined;
  /** What became of its ClusterProfile. */
  readonly access: (name: string) => Access | undefined;
  readonly failed: (name: string, error: Error) => void;
  /** Whether this is still the one of several syncs that writes. */
  readonly leads: () => boolean;
}

/**
 * Writes the status of `Tenant` objects where it has changed. A write names the version that it was made for, so a late one, of a sync that
 * no longer leads, does nothing once another has written.
 */
export class StatusWriter {
  readonly #options: StatusOptions;
  /** By object whose status the API server did not keep whole: a definition of an earlier version lacks fields. */
  readonly #written = new Map<string, { readonly sent: TenantStatus; readonly kept: TenantStatus }>();

  constructor(options: StatusOptions) {
    this.#options = options;
  }

  /** @param plane undefined if no member has answered */
  async write(verdicts: Iterable<Verdict>, plane: PlaneSays | undefined, signal: AbortSignal): Promise<void> {
    const { known, access, leads } = this.#options;
    const now = new Date().toISOString().replace(/\.\d+Z$/, 'Z');
    const writes: (() => Promise<void>)[] = [];
    for (const verdict of verdicts) {
      if (verdict.source.kind !== 'Tenant') continue;
      const name = objectName({ metadata: verdict.source });
      const told = known(name);
      if (!told) continue;
      const before = told.status;
      const file = `${fileName(verdict.source)}${ENDING}`;
      const inForce = plane && plane.askedAt >= verdict.writtenAt + SYNC.inForceMs;
      const said = {
        connected: plane && (plane.connected.get(file) ?? NOBODY),
        fault: inForce ? (plane.faults.get(file) ?? '') : undefined,
        access: access(name),
      };
      const status = statusOf(verdict, said, before, now);
      const last = this.#written.get(name);
      const stands = last && isDeepStrictEqual(last.sent, status) && isDeepStrictEqual(last.kept, before);
      if (!stands && !isDeepStrictEqual(before, status))
        writes.push(() => this.#put(verdict.source, told.version, status, signal));
    }
    const next = async () => {
      for (let write = writes.shift(); write && leads() && !signal.aborted; write = writes.shift()) await write();
    };
    await Promise.all(Array.from({ length: SYNC.statusesAtOnce }, next));
  }

  async #put(
    { namespace, name }: Verdict['source'],
    resourceVersion: string,
    status: TenantStatus,
    signal: AbortSignal,
  ): Promise<void> {
    const full = `${namespace}/${name}`;
    const path = `${GROUP}/namespaces/${namespace}/tenants/${name}/status`;
    const metadata = { namespace, name, resourceVersion };
    const body = { apiVersion: 'isthmus.dev/v1alpha1', kind: 'Tenant', metadata, status };
    const query = { fieldManager: MANAGER };
    try {
      const call = { method: 'MERGE', path, query, body, signal } as const;
      const { status: kept = {} } = await this.#options.client.request<{ readonly status?: TenantStatus }>(call);
      if (isDeepStrictEqual(kept, status)) this.#written.delete(full);
      else this.#written.set(full, { sent: status, kept: countedStatus(kept) });
    } catch (error) {
      // It was deleted or changed meanwhile. The next round knows.
      if (error instanceof KubeStatusError && (error.status === 404 || error.status === 409)) return;
      this.#options.failed(full, error as Error);
    }
  }
}

const NOBODY: Connected = { agents: 0, sessions: 0, hubs: 0, callers: 0 };
