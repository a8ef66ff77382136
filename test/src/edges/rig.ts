import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import { inspect } from 'node:util';
import type { CallerProtocol } from '@isthmus/tunnel';
import {
  connectThrough,
  Destination,
  Digest,
  type Front,
  grpcThrough,
  hasHedged,
  type Program,
  packetsThrough,
  type Scope,
  until,
  type Via,
  within,
} from '../harness/index.ts';

/** Long enough for 1 GiB on a busy machine. */
const TRANSFER_MS = 240_000;

/** A port or socket for callers, with a protocol. */
export interface Edge {
  readonly name: string;
  readonly protocol: CallerProtocol;
  readonly via: Via;
}

/** The four caller edges of one server. */
export function edgesOf(front: Front): readonly Edge[] {
  return [
    { name: 'gRPC over UDS', protocol: 'grpc', via: front.grpc },
    { name: 'gRPC over mTLS', protocol: 'grpc', via: front.mtls },
    { name: 'CONNECT over UDS', protocol: 'http-connect', via: front.connect },
    { name: 'CONNECT over mTLS', protocol: 'http-connect', via: front.mtls },
  ];
}

export function connectEdgesOf(front: Front): readonly Edge[] {
  return edgesOf(front).filter(({ protocol }) => protocol === 'http-connect');
}

/** Opens a tunnel on any edge. Throws an error with the text of the refusal. */
export async function dial(scope: Scope, { protocol, via }: Edge, destination: string): Promise<Duplex> {
  switch (protocol) {
    case 'grpc':
      return grpcThrough(scope, via, destination);
    case 'http-connect':
      return dialByConnect(scope, via, destination);
  }
}

async function dialByConnect(scope: Scope, via: Via, destination: string): Promise<Duplex> {
  const { status, reason, head, socket } = await connectThrough(scope, { via, destination });
  if (status !== 200) throw new Error(reason);
  // A destination that sends first may be as fast as the answer.
  if (head.length > 0) socket.unshift(head);
  return socket;
}

/** How both protocols of a server rejected a dial, over its unix socket. */
export interface Refusals {
  /** Error of the DIAL_RSP. */
  readonly grpc: string;
  readonly status: number;
  /** Reason phrase of the status line. */
  readonly reason: string;
  readonly proxyStatus: string;
}

export async function refusals(
  scope: Scope,
  front: Pick<Front, 'grpc' | 'connect'>,
  destination: string,
): Promise<Refusals> {
  const random = 1n;
  const packets = packetsThrough(scope, front.grpc);
  packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random });
  const [{ error }, { status, reason, headers }] = await Promise.all([
    packets.expect('DIAL_RSP'),
    connectThrough(scope, { via: front.connect, destination }),
  ]);
  return { grpc: error, status, reason, proxyStatus: headers['proxy-status'] ?? '' };
}

/** Asserts that a dial failed on both protocols: RFC 9209's name and the status for CONNECT, the text for both. */
export function assertRefused(refused: Refusals, status: number, name: string, text: RegExp): void {
  assert.match(refused.grpc, text);
  assert.equal(refused.status, status, refused.reason);
  assert.match(refused.reason, text);
  assert.ok(refused.proxyStatus.startsWith(`isthmus; error=${name}; details="`), refused.proxyStatus);
  assert.match(refused.proxyStatus, text);
}

/** Reads from a tunnel until nothing more arrives. */
export function ended(tunnel: Duplex): Promise<void> {
  const end = new Promise<void>((resolve, reject) => {
    tunnel.once('end', resolve).once('error', reject);
    tunnel.once('close', () => reject(new Error('closed without an end')));
  });
  tunnel.resume();
  return within(end, { deadline: TRANSFER_MS, what: 'the end of a tunnel' });
}

/** Sends bytes, reads as many back, and returns whether they are equal. */
export async function echoes(tunnel: Duplex, text: string): Promise<boolean> {
  return (await exchange(tunnel, text, text.length)) === text;
}

/** Sends bytes, and reads the given number of bytes. */
export async function exchange(tunnel: Duplex, text: string, bytes: number): Promise<string> {
  let answer = '';
  const take = (chunk: Buffer) => {
    answer += chunk.toString('latin1');
  };
  tunnel.on('data', take).resume();
  tunnel.write(text);
  await until(() => answer.length >= bytes, {
    what: () => `${bytes} bytes of a tunnel; it sent ${JSON.stringify(answer)}`,
    hopeless: () => (tunnel.destroyed ? `it is closed: ${tunnel.errored?.message}` : undefined),
  });
  tunnel.off('data', take).pause();
  return answer;
}

/** Reads to the end. The caller's own side stays open. */
export async function readAll(tunnel: Duplex): Promise<string> {
  const chunks: Buffer[] = [];
  tunnel.on('data', (chunk: Buffer) => chunks.push(chunk));
  await ended(tunnel);
  return Buffer.concat(chunks).toString('latin1');
}

/** Counts and hashes received bytes to the end. */
export async function digestOf(tunnel: Duplex): Promise<Digest> {
  const digest = new Digest();
  tunnel.on('data', (chunk: Buffer) => digest.update(chunk));
  await ended(tunnel);
  return digest;
}

/** Starts a destination that serves as the test says. */
export async function destination(scope: Scope, serve: ConstructorParameters<typeof Destination>[1]) {
  return scope.use(await new Destination('127.0.0.1', serve).listen());
}

/** Waits until a destination has no open socket. */
export function abandoned(target: Destination): Promise<true> {
  return until(() => target.open === 0, {
    what: () => `the end of all sockets at ${target.authority}: ${target.open} of ${target.accepted} are open`,
  });
}

/** Starts a destination that sends at once and without end, as fast as its caller reads. */
export function endless(scope: Scope): Promise<Destination> {
  const chunk = Buffer.alloc(64 * 1024, 'endless ');
  return destination(scope, (socket) => {
    const write = () => {
      while (!socket.destroyed && socket.write(chunk));
    };
    socket.on('drain', write).resume();
    write();
  });
}

/** Waits until a server counts `count` tunnels. */
export function tunnelsAre(server: Program, count: number): Promise<void> {
  return metricIs(server, 'konnectivity_network_proxy_server_established_connections', count);
}

/** Waits until an agent counts `count` sockets to destinations. */
export function endpointsAre(agent: Program, count: number): Promise<void> {
  return metricIs(agent, 'konnectivity_network_proxy_agent_open_endpoint_connections', count);
}

/** Waits until a server counts `count` dials without an answer. Fails as soon as an answer is there. */
export async function dialsPend(
  server: Program,
  count: number,
  ...answers: readonly Promise<unknown>[]
): Promise<void> {
  let early: string | undefined;
  const note = (answer: unknown) => {
    early ??= `an answer: ${inspect(answer, { depth: 0 })}`;
  };
  for (const answer of answers) answer.then(note, note);
  await metricIs(server, 'konnectivity_network_proxy_server_pending_backend_dials', count, () => early);
}

export async function metricIs(
  program: Program,
  name: string,
  wanted: number,
  hopeless?: () => string | undefined,
): Promise<void> {
  let last: number | undefined;
  const reached = async () => {
    last = (await program.metric(name)).get('{}');
    return last === wanted;
  };
  await until(reached, { what: () => `${name} to be ${wanted}; it is ${last}`, ...(hopeless && { hopeless }) });
}

/**
 * Returns the agent that got a dial: the one whose count of dials grew. The log would not do, because an earlier dial may appear in it
 * late.
 */
export async function taker(agents: readonly Program[], act: () => Promise<unknown>): Promise<Program> {
  const taken = async (agent: Program) =>
    await agent.value('konnectivity_network_proxy_agent_dial_duration_seconds_count');
  const before = await Promise.all(agents.map(taken));
  await act();
  const more = async () => {
    const now = await Promise.all(agents.map(taken));
    return agents.find((_, index) => (now[index] ?? 0) > (before[index] ?? 0));
  };
  return until(more, { what: 'an agent to count the dial' });
}

/** Dials until an agent of `allowed` gets the dial: the first one, or a later one if the gateway has hedged. */
export async function goesTo(
  { program }: Pick<Front, 'program'>,
  agents: readonly Program[],
  allowed: readonly Program[],
  act: () => Promise<unknown>,
  what = 'a dial',
): Promise<void> {
  for (;;) {
    const got = await taker(agents, act);
    if (allowed.includes(got)) return;
    assert.ok(await hasHedged(program), `${what} went to agent ${agents.indexOf(got)}, which may not get it`);
  }
}
