import type { Dial, Hub, Members, Refusal, Session, Status, Tenants } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { type AskLine, AskRounds, linesOf as linesIn } from '@isthmus/proto/ask';
import { CONSOLE } from './defaults.ts';

export type { Dial, Hub, Members, Refusal, Session, Status, Tenants };
export type Member = adminApi.Member;
export type Tunnel = adminApi.Tunnel;
export type Phase = adminApi.Phase;
export type Explanation = adminApi.ExplainResponse;
export type Candidate = adminApi.Candidate;
export type History = adminApi.GetHistoryResponse;
export type Quarantined = adminApi.QuarantinedAgent;
export type TriedDial = adminApi.DialResponse;
export type Drained = adminApi.DrainResponse;
export type LogLevels = adminApi.SetLogLevelResponse;

type Api = adminApi.AdminClient;

/** What the page reads, also of other members. */
type Reading =
  | ('GetStatus' | 'GetConfig' | 'GetHistory' | 'Explain')
  | ('ListMembers' | 'ListSessions' | 'ListTunnels' | 'ListTenants' | 'ListQuarantined');

/** What the page does, at its own member. */
type Acting = 'Dial' | 'Kick' | 'Quarantine' | 'SetLogLevel' | 'Drain';

/** In JSON, a message says what it is about by the field alone. */
type Request<M extends Reading | Acting> = M extends 'Kick'
  ? { readonly reason: string; readonly dialId?: string; readonly agent?: adminApi.Agent }
  : Parameters<Api[Uncapitalize<M>]>[0];

type Answer<M extends Reading | Acting> = Awaited<ReturnType<Api[Uncapitalize<M>]>>;

export type Watched = Parameters<Api['watchDials']>[0];

/** A member's answer that it cannot do what was asked, by the name of its code: `permission_denied`. */
export class RpcError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Question {
  readonly method: string;
  readonly message: object;
  readonly timeoutMs: number;
}

/** A browser has six connections to a port, so one request asks all members. */
const rounds = new AskRounds<Question>(
  (question, members) => ask<object>({ ...question, members }, late(question.timeoutMs)),
  ({ code, message }) => new RpcError(code, message),
);

/**
 * Asks a member, through the one that serves this page.
 * @param member its id; empty for the one that serves this page
 * @param ms how long its answer may take
 */
export function read<M extends Reading>(
  member: string,
  method: M,
  request: Request<M>,
  ms: number = CONSOLE.readMs,
): Promise<Answer<M>> {
  if (member === '') return own(method, request, ms);
  return rounds.ask(member, { method, message: request, timeoutMs: ms }) as Promise<Answer<M>>;
}

/** Lets the member that serves this page do something. */
export function act<M extends Acting>(method: M, request: Request<M>): Promise<Answer<M>> {
  return own(method, request, CONSOLE.actMs);
}

async function own<M extends Reading | Acting>(method: M, request: Request<M>, ms: number): Promise<Answer<M>> {
  for await (const line of ask<Answer<M>>({ method, message: request, members: [], timeoutMs: ms }, late(ms))) {
    if (line.error) throw new RpcError(line.error.code, line.error.message);
    return line.answer as Answer<M>;
  }
  throw new Error('the answer is empty');
}

/** The member that is asked has the same deadline for each, and says who was late. */
function late(ms: number): AbortSignal {
  return AbortSignal.timeout(ms + CONSOLE.mergeMs);
}

/** What a member says of its dials, or why it says nothing. */
export interface WatchedDial {
  readonly member: string;
  readonly answer?: adminApi.WatchDialsResponse;
  readonly fault?: string;
}

/** Yields members' dials until `signal` aborts, or all have ended. */
export async function* watchDials(
  members: readonly string[],
  request: Watched,
  signal: AbortSignal,
): AsyncGenerator<WatchedDial> {
  for await (const { member, answer, error } of ask<adminApi.WatchDialsResponse>(
    { method: 'WatchDials', message: request, members },
    signal,
  ))
    yield error
      ? { member: member.id, fault: error.message }
      : { member: member.id, answer: answer as adminApi.WatchDialsResponse };
}

async function* ask<A>(question: object, signal: AbortSignal): AsyncGenerator<AskLine<A>> {
  const response = await fetch('/ask', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
    signal,
  });
  await refuse(response);
  if (response.body) for await (const text of linesOf(response.body)) yield JSON.parse(text) as AskLine<A>;
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
}

export async function readSettings(): Promise<Settings> {
  const response = await fetch('/console/settings.json', { signal: AbortSignal.timeout(CONSOLE.readMs) });
  if (!response.ok) throw new Error(`settings.json: ${response.status} ${response.statusText}`);
  return (await response.json()) as Settings;
}

/** Yields the lines of a stream that are not empty. */
export function linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const most = CONSOLE.lineCharacters;
  return linesIn(textsOf(stream), most, () => new Error(`a line is longer than ${most} characters`));
}

async function* textsOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read())
      yield decoder.decode(read.value, { stream: true });
  } finally {
    await reader.cancel().catch(() => {});
  }
}
