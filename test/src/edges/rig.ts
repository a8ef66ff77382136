import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  connectThrough,
  Destination,
  Digest,
  type Front,
  grpcThrough,
  type Program,
  packetsThrough,
  type Scope,
  tunnelThrough,
  until,
  type Via,
  within,
} from '../harness/index.ts';

/** Machines that run tests are busy: nothing here takes so long, and nothing waits for longer. */
export const DEADLINE_MS = 20_000;

/** A way in for callers. */
export interface Edge {
  readonly name: string;
  readonly protocol: 'grpc' | 'http-connect';
  readonly via: Via;
}

/** The four ways into one server. */
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

/** A tunnel on any edge, or an error with the text of the refusal. */
export function dial(scope: Scope, { protocol, via }: Edge, destination: string): Promise<Duplex> {
  if (protocol === 'grpc') return grpcThrough(scope, via, destination);
  return tunnelThrough(scope, { via, destination, deadline: DEADLINE_MS });
}

/** How a dial was refused on both protocols of a server, over its unix socket. */
export interface Refusals {
  /** Error of the DIAL_RSP. */
  readonly grpc: string;
  readonly status: number;
  /** Of the status line. */
  readonly reason: string;
  readonly proxyStatus: string;
}

export async function refusals(scope: Scope, front: Front, destination: string): Promise<Refusals> {
  const random = 1n;
  const packets = packetsThrough(scope, front.grpc);
  packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination, random });
  const [{ error }, { status, reason, headers }] = await Promise.all([
    packets.expect('DIAL_RSP', DEADLINE_MS),
    connectThrough(scope, { via: front.connect, destination, deadline: DEADLINE_MS }),
  ]);
  return { grpc: error, status, reason, proxyStatus: headers['proxy-status'] ?? '' };
}

/** Asserts a failure on both protocols: RFC 9209's name and the status for one, the text for both. */
export function assertRefused(refused: Refusals, status: number, name: string, text: RegExp): void {
  assert.match(refused.grpc, text);
  assert.equal(refused.status, status, refused.reason);
  assert.match(refused.reason, text);
  assert.ok(refused.proxyStatus.startsWith(`isthmus; error=${name}; details="`), refused.proxyStatus);
  assert.match(refused.proxyStatus, text);
}

/** Waits for an event of a tunnel's caller. */
export function event(stream: Duplex, name: 'end' | 'close'): Promise<void> {
  return within(new Promise<void>((resolve) => void stream.once(name, () => resolve())), {
    deadline: DEADLINE_MS,
    what: `'${name}' of a tunnel`,
  });
}

/** Sends, reads back as much, and says whether it is the same. */
export async function echoes(tunnel: Duplex, text: string): Promise<boolean> {
  return (await exchange(tunnel, text, text.length)) === text;
}

/** Sends, and reads so many bytes. */
export async function exchange(tunnel: Duplex, text: string, bytes: number): Promise<string> {
  let answer = '';
  const take = (chunk: Buffer) => {
    answer += chunk.toString('latin1');
  };
  tunnel.on('data', take).resume();
  tunnel.write(text);
  await until(() => answer.length >= bytes, {
    deadline: DEADLINE_MS,
    what: () => `${bytes} bytes of a tunnel; it sent ${JSON.stringify(answer)}`,
    hopeless: () => (tunnel.destroyed ? `it is closed: ${tunnel.errored?.message}` : undefined),
  });
  tunnel.off('data', take).pause();
  return answer;
}

/** Reads to the end. */
export async function readAll(tunnel: Duplex): Promise<string> {
  return (await within(buffer(tunnel), { deadline: DEADLINE_MS, what: 'the end of a tunnel' })).toString('latin1');
}

/** Counts and hashes what comes, to the end. */
export async function digestOf(tunnel: Duplex): Promise<Digest> {
  const digest = new Digest();
  for await (const chunk of tunnel) digest.update(chunk);
  return digest;
}

/** A destination of the test's own making. */
export async function destination(scope: Scope, serve: ConstructorParameters<typeof Destination>[1]) {
  return scope.use(await new Destination('127.0.0.1', serve).listen());
}

/** Waits until a destination has no socket. */
export function abandoned(target: Destination): Promise<true> {
  return until(() => target.open === 0, {
    deadline: DEADLINE_MS,
    what: () => `the end of all sockets at ${target.authority}: ${target.open} of ${target.accepted} are open`,
  });
}

const TUNNELS = 'konnectivity_network_proxy_server_established_connections';

/** Waits until a server counts so many tunnels. */
export async function tunnelsAre(server: Program, count: number): Promise<void> {
  let last: number | undefined;
  const counted = async () => {
    last = (await server.metric(TUNNELS)).get('{}');
    return last === count;
  };
  await until(counted, { deadline: DEADLINE_MS, what: () => `${count} tunnels; there are ${last}` });
}

/** Which of several agents gets a dial: the one whose log tells of one more. */
export async function taker(agents: readonly Program[], act: () => Promise<unknown>): Promise<Program> {
  const taken = ({ logs }: Program) => logs.filter(({ msg }) => msg === 'dial established').length;
  const before = new Map(agents.map((agent) => [agent, taken(agent)]));
  await act();
  return until(() => agents.find((agent) => taken(agent) > (before.get(agent) ?? 0)), {
    deadline: DEADLINE_MS,
    what: 'an agent to tell of the dial',
  });
}
