import type { Config, Dial, Hub, Members, Refusal, Session, Status, Tenants } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { CONSOLE } from './defaults.ts';

export type { Dial, Hub, Members, Refusal, Session, Status, Tenants };
export type Member = adminApi.Member;
export type Tunnel = adminApi.Tunnel;
type DialEvent = adminApi.WatchDialsResponse;
export type Phase = adminApi.Phase;
export type Explanation = adminApi.ExplainResponse;
export type Candidate = adminApi.Candidate;
export type History = adminApi.GetHistoryResponse;
export type Quarantined = adminApi.QuarantinedAgent;
export type TriedDial = adminApi.DialResponse;
export type Drained = adminApi.DrainResponse;
export type LogLevels = adminApi.SetLogLevelResponse;

/** What the page reads, also of other members. */
interface Reads {
  GetStatus: [request: object, answer: Status];
  GetConfig: [request: object, answer: Config];
  GetHistory: [request: { readonly tenant?: string }, answer: History];
  ListMembers: [request: object, answer: Members];
  ListSessions: [request: { readonly tenant?: string }, answer: { readonly sessions: Session[] }];
  ListTunnels: [request: { readonly tenant?: string }, answer: { readonly tunnels: Tunnel[] }];
  ListTenants: [request: object, answer: Tenants];
  ListQuarantined: [request: object, answer: { readonly agents: Quarantined[] }];
  Explain: [request: { destination: string; tenant: string; caller: string }, answer: Explanation];
}

interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

/** What the page does, at its own member. */
interface Actions {
  Dial: [
    request: {
      destination: string;
      tenant: string;
      agentId?: string;
      timeoutMs?: number;
      firstByteTimeoutMs?: number;
    },
    answer: TriedDial,
  ];
  Kick: [
    request: { readonly reason: string } & ({ dialId: string } | { sessionId: string } | { agent: AgentName }),
    answer: adminApi.KickResponse,
  ];
  Quarantine: [
    request: { agent: AgentName; lift?: boolean; reason?: string },
    answer: adminApi.QuarantineResponse,
  ];
  SetLogLevel: [request: { level: string; durationMs?: number }, answer: LogLevels];
  Drain: [request: { dryRun: boolean }, answer: Drained];
}

/** As WatchDialsRequest in the API. */
export interface Watched {
  readonly tenant?: string;
  readonly destination?: string;
  readonly onlyFailed?: boolean;
  readonly slowerThanMs?: number;
  readonly role?: number;
  readonly recent?: number;
  readonly phases?: boolean;
  readonly firstBytes?: boolean;
}

const METHODS = '/console/isthmus.admin.v1.Admin/';

/** A member's answer that it cannot do what was asked, by the name of its code: `permission_denied`. */
export class RpcError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Asks a member.
 * @param origin of the member; empty for the one that serves this page
 * @param ms how long its answer may take
 */
export async function read<M extends keyof Reads>(
  origin: string,
  method: M,
  request: Reads[M][0],
  ms: number = CONSOLE.readMs,
): Promise<Reads[M][1]> {
  const response = await get(origin, method, request, AbortSignal.timeout(ms));
  return (await response.json()) as Reads[M][1];
}

/** Lets the member that serves this page do something. */
export async function act<M extends keyof Actions>(method: M, request: Actions[M][0]): Promise<Actions[M][1]> {
  const response = await fetch(METHODS + method, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(CONSOLE.actMs),
  });
  await refuse(response);
  return (await response.json()) as Actions[M][1];
}

/** Yields a member's dials until `signal` aborts, or the member ends the stream. */
export async function* watchDials(origin: string, request: Watched, signal: AbortSignal): AsyncGenerator<DialEvent> {
  const { body } = await get(origin, 'WatchDials', request, signal);
  if (!body) return;
  for await (const line of linesOf(body)) {
    const event = JSON.parse(line) as DialEvent & { readonly code?: string; readonly message?: string };
    if (event.code !== undefined) throw new RpcError(event.code, event.message ?? '');
    yield event;
  }
}

/** A GET without headers of its own, which a browser sends to another member without asking it first. */
async function get(origin: string, method: string, request: object, signal: AbortSignal): Promise<Response> {
  const message = encodeURIComponent(JSON.stringify(request));
  // Another member's port asks for the operator's certificate too.
  const response = await fetch(`${origin}${METHODS}${method}?message=${message}`, { credentials: 'include', signal });
  await refuse(response);
  return response;
}

async function refuse(response: Response): Promise<void> {
  if (response.ok) return;
  const text = await response.text();
  try {
    const { code, message } = JSON.parse(text) as { readonly code: string; readonly message: string };
    throw new RpcError(code, message);
  } catch (error) {
    if (error instanceof RpcError) throw error;
    throw new RpcError(`${response.status}`, text.trim() || response.statusText);
  }
}

/** Says in words why a member did not answer. */
export function reasonOf(error: unknown): string {
  if (error instanceof RpcError) return error.message;
  const { name, message } = error as Error;
  if (name === 'TimeoutError') return 'no answer in time';
  // Browsers say no more of a connection that failed.
  if (error instanceof TypeError) return 'this browser cannot reach it';
  return message;
}

/** What the member that serves the page says of it. */
export interface Settings {
  /** With `{trace_id}`; empty for no links to traces. */
  readonly traceUrl: string;
  /** The tenant that the operator's certificate is of; empty for an operator of the plane. */
  readonly tenant: string;
  /** The other members that the page's policy lets it ask, as origins. */
  readonly members: readonly string[];
}

export async function readSettings(): Promise<Settings> {
  const response = await fetch('/console/settings.json', { signal: AbortSignal.timeout(CONSOLE.readMs) });
  if (!response.ok) throw new Error(`settings.json: ${response.status} ${response.statusText}`);
  return (await response.json()) as Settings;
}

/** Yields the lines of a stream that are not empty. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const lines = (rest + decoder.decode(read.value, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > CONSOLE.lineCharacters)
        throw new Error(`a line is longer than ${CONSOLE.lineCharacters} characters`);
      yield* lines.filter((line) => line !== '');
    }
    if (rest !== '') yield rest;
  } finally {
    await reader.cancel().catch(() => {});
  }
}
