import type { Dial, Hub, Session, Status } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { type AskError, type AskLine, linesOf as linesIn } from '@isthmus/proto/ask';
import { CONSOLE } from './defaults.ts';

export type { Dial, Hub, Session, Status };
export type Tunnel = adminApi.Tunnel;
export type Phase = adminApi.Phase;
export type Explanation = adminApi.ExplainResponse;
export type Candidate = adminApi.Candidate;
export type History = adminApi.GetHistoryResponse;
export type Quarantined = adminApi.QuarantinedAgent;
export type TriedDial = adminApi.DialResponse;
export type Drained = adminApi.DrainResponse;

type Api = adminApi.AdminClient;

type Method =
  | ('GetStatus' | 'GetHistory' | 'Explain')
  | ('ListMembers' | 'ListSessions' | 'ListTunnels' | 'ListTenants' | 'ListQuarantined')
  | ('Dial' | 'Kick' | 'Quarantine' | 'Drain');

/** In JSON, a message says what it is about by the field alone. */
type Request<M extends Method> = M extends 'Kick'
  ? { readonly reason: string; readonly dialId?: string; readonly agent?: adminApi.Agent }
  : Parameters<Api[Uncapitalize<M>]>[0];

type Answer<M extends Method> = Awaited<ReturnType<Api[Uncapitalize<M>]>>;

export type Watched = Parameters<Api['watchDials']>[0];

/** What one member answered, or why it did not, and when, in milliseconds since the epoch. */
export interface Told<T> extends AskLine<T> {
  readonly at: number;
}

/**
 * Asks members of the plane through the one that serves this page, by one request: a browser has six connections to a port.
 * @param members ids; unset: all
 * @param ms how long each of them may take
 * @throws if nobody answers
 */
export async function askAll<M extends Method>(
  members: readonly string[] | undefined,
  method: M,
  request: Request<M>,
  ms: number = CONSOLE.readMs,
): Promise<Told<Answer<M>>[]> {
  // To the member that serves this page, an empty list is itself.
  return members?.length === 0 ? [] : toldBy({ method, message: request, members, timeoutMs: ms });
}

interface Question {
  readonly method: string;
  readonly message: object;
  readonly members: readonly string[] | undefined;
  readonly timeoutMs: number;
}

async function toldBy<A>(question: Question): Promise<Told<A>[]> {
  const told: Told<A>[] = [];
  // The member that is asked has the same deadline for each, and says who was late.
  const late = AbortSignal.timeout(question.timeoutMs + CONSOLE.mergeMs);
  for await (const line of ask<A>(question, late)) told.push({ ...line, at: Date.now() });
  if (told.some(({ error }) => error === undefined)) return told;
  throw new Error(told[0]?.error?.message ?? 'the answer is empty');
}

/**
 * Asks one member, or lets it do something.
 * @param member its id; empty for the one that serves this page
 */
export async function askOne<M extends Method>(
  member: string,
  method: M,
  request: Request<M>,
  ms: number = CONSOLE.readMs,
): Promise<Answer<M>> {
  const members = member === '' ? [] : [member];
  const [told] = await toldBy<Answer<M>>({ method, message: request, members, timeoutMs: ms });
  return told?.answer as Answer<M>;
}

/** Lets a member do something, which may take long. */
export function act<M extends Method>(member: string, method: M, request: Request<M>): Promise<Answer<M>> {
  return askOne(member, method, request, CONSOLE.actMs);
}

/** Yields members' dials, or why they tell none, until `signal` aborts, or all have ended. */
export function watchDials(members: readonly string[], request: Watched, signal: AbortSignal) {
  return ask<adminApi.WatchDialsResponse>({ method: 'WatchDials', message: request, members }, signal);
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
  throw new Error(messageIn(text) ?? (text.trim() || response.statusText));
}

function messageIn(text: string): string | undefined {
  try {
    return (JSON.parse(text) as AskError).message;
  } catch {
    return undefined;
  }
}

/** Says in words why a member did not answer. */
export function reasonOf(error: unknown): string {
  const { name, message } = error as Error;
  if (name === 'TimeoutError') return 'no answer in time';
  // Browsers say no more of a connection that failed.
  return error instanceof TypeError ? 'this browser cannot reach it' : message;
}

/** What the member that serves the page says of it. */
export interface Settings {
  /** With `{trace_id}`; empty for no links to traces. */
  readonly traceUrl: string;
  /** The tenant that the operator's certificate is of; empty for an operator of the plane. */
  readonly tenant: string;
  /** Its id. */
  readonly member: string;
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
