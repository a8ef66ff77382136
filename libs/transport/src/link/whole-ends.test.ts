import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { SharedBudget } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  AgentTunnels,
  DialAbort,
  dialLog,
  GatewayTunnels,
  type NextHop,
  planeEvents,
  Tunnel,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { endpointDial } from '../endpoint.ts';
import { resetSocket, SocketEnd } from '../socket-end.ts';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { LinkServer } from './server.ts';
import { listen, request } from './testing.ts';

const GATEWAY = '0123456789abcdef';
const ANSWER = Buffer.alloc(40_000, 'x');

/** What a destination does behind its answer. */
type Ending = 'ends' | 'resets';
/** How a link is lost: as by the death of a process behind it, or on the way. */
type Loss = 'closed' | 'reset';
type Place = 'gateway and hub' | 'hub and agent';

/** Where and how a link is lost: after so many bytes towards the caller. */
interface Fault {
  readonly place: Place;
  readonly loss: Loss;
  readonly after: number;
}

/** Carries a link, and loses it. @returns the port where it listens, and how many bytes it has carried towards the caller */
async function carry(to: number, towards: 'near' | 'far', fault?: Fault): Promise<{ port: number; bytes: number }> {
  const carried = { port: 0, bytes: 0 };
  const server = net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect({ port: to, host: '127.0.0.1', allowHalfOpen: true });
    const both = [near, far];
    const lose = () => {
      for (const socket of both) fault?.loss === 'reset' ? resetSocket(socket) : socket.destroy();
    };
    for (const [from, into] of [both, [far, near]] as [Socket, Socket][]) {
      const counts = into === (towards === 'near' ? near : far);
      from.on('error', () => {}).on('close', () => into.destroy());
      from.on('data', (chunk: Buffer) => {
        if (!counts || !fault) {
          into.write(chunk);
          if (counts) carried.bytes += chunk.length;
          return;
        }
        const left = fault.after - carried.bytes;
        carried.bytes += chunk.length;
        if (left >= chunk.length) into.write(chunk);
        else into.write(chunk.subarray(0, Math.max(0, left)), lose);
      });
      from.on('end', () => into.end());
    }
  });
  carried.port = await listen(server);
  return carried;
}

async function connected(port: number): Promise<Socket> {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  await once(socket, 'connect');
  return socket;
}

/** A hub with a link of the gateway and one of the agent. @returns the way through it */
async function hub(tunnels: AgentTunnels | undefined, fault?: Fault) {
  const events = planeEvents();
  const dial = endpointDial({ agentId: 'a', events });
  const agent = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    new LinkServer({ socket, peer: 'hub', role: 'agent', dial, events, ...(tunnels && { tunnels }) });
  });
  const ofAgent = await carry(await listen(agent), 'near', fault?.place === 'hub and agent' ? fault : undefined);
  const toAgent = new LinkClient({ socket: await connected(ofAgent.port), peer: 'agent a', to: 'agent', events });
  const passing = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    const { dial, attach } = toAgent;
    new LinkServer({ socket, peer: 'gateway', role: 'hub', dial, attach, events });
  });
  const ofHub = await carry(await listen(passing), 'near', fault?.place === 'gateway and hub' ? fault : undefined);
  const way = new LinkClient({
    socket: await connected(ofHub.port),
    peer: 'hub',
    gatewayInstance: GATEWAY,
    events: planeEvents(),
  });
  cleanups.push(() => {
    for (const link of [way, toAgent]) link.destroy(new Error('test over'));
  });
  return { way, carried: { 'gateway and hub': ofHub, 'hub and agent': ofAgent } };
}

type Sessions = ConstructorParameters<typeof GatewayTunnels>[0]['directory'];

/** The sessions of an agent with two hubs. Those that were lost stay lost. */
function sessionsOf(instance: string): Sessions & { all(): NonNullable<ReturnType<Sessions['session']>>[] } {
  const known = new Map(
    ['h1', 'h2'].map((hubId) => [
      `s of ${hubId}`,
      {
        record: { tenant: 'default', agentId: 'a', sessionId: `s of ${hubId}`, hubId, instance },
        state: { draining: false },
      },
    ]),
  );
  return {
    ownHub: undefined,
    watch() {},
    session: (sessionId) => known.get(sessionId),
    ofAgent: () => known.values(),
    forget: (sessionId) => void known.delete(sessionId),
    enter: () => () => {},
    all: () => [...known.values()],
  };
}

interface Seen {
  /** Bytes that the caller got, and how they ended for it. */
  readonly bytes: number;
  readonly end: 'FIN' | 'RST';
  /** How the gateway says that the tunnel ended. */
  readonly outcome: TunnelOutcome;
  readonly carried: Readonly<Record<Place, number>>;
}

/** One tunnel whose destination answers, and then ends or resets, and what its caller saw. @param resumes whether there are halves, and another hub */
async function tunnel(ending: Ending, resumes: boolean, fault?: Fault): Promise<Seen> {
  const destination = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      if (ending === 'ends') socket.end(ANSWER);
      else socket.write(ANSWER, () => socket.resetAndDestroy());
    });
  });
  const port = await listen(destination);
  // No tunnel waits for so long: a busy machine may take seconds to find the other hub.
  const [timeoutMs, budget] = [60_000, new SharedBudget(0)];
  const atAgent = resumes ? new AgentTunnels({ timeoutMs, budget }) : undefined;
  const first = await hub(atAgent, fault);
  const ways: Record<string, NextHop> = { h1: first.way };
  if (resumes) ways.h2 = (await hub(atAgent)).way;
  const events = planeEvents();
  const directory = sessionsOf(atAgent?.instance ?? '');
  const halves = new GatewayTunnels({
    ...{ timeoutMs, budget, directory, instance: GATEWAY, observation: { events } },
    suspects: { accuse() {} },
    nextHop: (hubId) => ways[hubId],
    route: ({ tried }) =>
      directory
        .all()
        .filter(({ record }) => !tried.has(record.sessionId))
        .map((session) => ({ session, rank: 1 })),
  });
  const accepted = Promise.withResolvers<Socket>();
  const door = await listen(net.createServer({ allowHalfOpen: true }, accepted.resolve));
  const caller = await connected(door);
  const dial = { ...request(port), session: 's of h1', log: dialLog(), signal: new DialAbort() };
  if (resumes) halves.resume.enter?.(dial, { goOn() {} } as never);
  const established = await first.way.dial(dial);
  if (resumes) halves.resume.answered?.(dial, established);
  const over = Promise.withResolvers<TunnelOutcome>();
  events.on('tunnel:close', (_, outcome) => over.resolve(outcome));
  new Tunnel('gateway', dial, new SocketEnd(await accepted.promise), established, events);
  let bytes = 0;
  let end: Seen['end'] | undefined;
  caller.on('data', ({ length }: Buffer) => {
    bytes += length;
  });
  caller.once('end', () => {
    end ??= 'FIN';
    caller.end();
  });
  caller.once('error', () => {
    end ??= 'RST';
  });
  caller.write('?');
  await until(() => end !== undefined, 'an end at the caller');
  const { carried } = first;
  const counts = {
    'gateway and hub': carried['gateway and hub'].bytes,
    'hub and agent': carried['hub and agent'].bytes,
  };
  return { bytes, end: end as Seen['end'], outcome: await over.promise, carried: counts };
}

/** Between two bytes at which a link is lost: heads, marks and ends of frames are shorter than this, so some fall into each. */
const APART = 13_007;
/** At the end, where frames are short, links are lost more often. */
const LAST = 60;
const LAST_APART = 13;

for (const resumes of [false, true])
  test(`what a caller reads as an end is whole, at whichever byte a link is lost, ${resumes ? 'with' : 'without'} halves`, {
    skip: 'Deno' in globalThis && 'Deno 2.9 has no reset of its own for a socket',
  }, async () => {
    for (const ending of ['ends', 'resets'] as const) {
      const well = await tunnel(ending, resumes);
      assert.equal(well.end, ending === 'ends' ? 'FIN' : 'RST');
      for (const place of ['gateway and hub', 'hub and agent'] as const) {
        const total = well.carried[place];
        const bulk = Array.from({ length: Math.ceil(total / APART) }, (_, index) => index * APART);
        const last = Array.from(
          { length: Math.ceil(LAST / LAST_APART) },
          (_, index) => total - LAST + index * LAST_APART,
        );
        for (const loss of ['closed', 'reset'] as const) {
          const each = async (after: number) => ({
            after,
            seen: await tunnel(ending, resumes, { place, loss, after }),
          });
          for (const { after, seen } of await Promise.all([...bulk.slice(1), ...last].map(each))) {
            const what = `${ending}, ${loss} between ${place} after ${after} of ${total}: ${JSON.stringify(seen)}`;
            if (seen.end === 'FIN') assert.deepEqual([ending, seen.bytes], ['ends', ANSWER.length], what);
            else assert.notEqual(seen.outcome.how, 'closed', what);
            if (resumes && ending === 'ends') assert.equal(seen.end, 'FIN', what);
          }
        }
      }
    }
  });
