import { readdirSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import type { Ways } from '../../harness/index.ts';
import {
  cpuMs,
  limitDescriptors,
  type Member,
  openDescriptors,
  prlimitMissing,
  type Scope,
  until,
} from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { dial, PROTOCOLS } from '../../rig/dial.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

const SHAPE = { servers: 2, agents: 4 };

/** Below the lowest free descriptor: open files stay open, and no more can be opened. */
const NONE = 3;
const ENOUGH = 1024;
/** More than a server keeps in reserve. */
const FOR_TUNNELS = 150;

/** Starves one agent. Dials must go to the others. */
const agentDescriptors: Row<Plane> = {
  name: 'descriptors-agent',
  fault: 'file descriptors of one of 4 agents exhausted',
  holds: 'no crash, 0 failed dials, recovers by itself',
  bounds: { dialMs: 1000 },
  skip: prlimitMissing,
  topology: (scope) => startPlane(scope, SHAPE),
  async inject({ plane, hold }) {
    const [agent] = plane.agents as [Member];
    limitDescriptors(agent.program, NONE);
    await hold(15_000, 3000);
    limitDescriptors(agent.program, ENOUGH);
  },
};

/** The load calls the other server. What callers of the starved one see is measured separately. */
async function twoServersOneDoor(scope: Scope): Promise<Plane & { readonly starved: Ways }> {
  const plane = await startPlane(scope, SHAPE);
  const [starved, ...doors] = plane.doors as [Ways, ...Ways[]];
  return { ...plane, doors, starved };
}

type Starving = Context<Plane & { readonly starved: Ways }>;

/** Dials the starved server by every protocol. @returns how long the slowest refusal took, and the text of each */
async function turnedAway({ plane, destination }: Starving): Promise<{ readonly ms: number; readonly told: string[] }> {
  let ms = 0;
  const told: string[] = [];
  for (const protocol of PROTOCOLS) {
    const at = clock();
    const call = dial([plane.starved], 0, protocol, destination);
    const error = await call.then(
      ({ stream }) => {
        stream.destroy();
        throw new Error(`a starved server accepted a dial by ${protocol}`);
      },
      (error: Error) => error,
    );
    told.push(error.message);
    ms = Math.max(ms, clock() - at);
  }
  return { ms, told };
}

/** Opens tunnels until the server has only its reserve left. */
async function useUp(context: Starving, server: Member): Promise<void> {
  const { scope, plane, destination, hold, short, measure } = context;
  limitDescriptors(server.program, openDescriptors(server.program.pid) + FOR_TUNNELS);
  const held: Duplex[] = [];
  scope.defer(() => held.forEach((stream) => void stream.destroy()));
  const open = async () => {
    const { stream } = await dial([plane.starved], 0, 'connect', destination);
    held.push(stream.on('error', () => {}));
  };
  // A process counts what it has a while after it opens something, and no process has its limit lowered elsewhere.
  await open();
  await hold(2000, 2000);
  const fill = async () => {
    for (let tunnel = 0; tunnel < FOR_TUNNELS; tunnel++) await open();
  };
  const full = await fill().then(
    () => 'nothing',
    (error: Error) => error.message,
  );
  if (!full.includes('too many open files')) throw new Error(`the last caller got ${full}`);
  let slowest = 0;
  for (let round = 0; round < (short ? 3 : 10); round++) {
    const { ms, told } = await turnedAway(context);
    const vague = told.find((text) => !text.includes('too many open files'));
    if (vague !== undefined) throw new Error(`a caller got ${vague}`);
    slowest = Math.max(slowest, ms);
    await server.program.get('/readyz');
    await hold(500, 200);
  }
  measure('callers get the reason within', slowest, 'ms', 1000);
  for (const stream of held) stream.destroy();
  measure('callers accepted again after', await takesAgain(plane.starved, destination), 'ms', 2000);
}

async function takesAgain(door: Ways, destination: string): Promise<number> {
  const from = clock();
  const taken = async () => {
    const { stream } = await dial([door], 0, 'grpc', destination);
    stream.destroy();
    return true;
  };
  await until(taken, { what: 'a dial through the starved server' });
  return clock() - from;
}

/** The number that the next descriptor of a process would have: the limit is on numbers, and there may be higher ones. */
function lowestFree(pid: number): number {
  const open = new Set(readdirSync(`/proc/${pid}/fd`));
  let free = 0;
  while (open.has(String(free))) free++;
  return free;
}

/** No descriptor can be opened: the server cannot answer callers, and closes what they connect. */
async function useUpAll(context: Starving, server: Member): Promise<void> {
  const { plane, destination, hold, measure, short } = context;
  // What was closed a moment ago leaves room.
  await hold(1000, 1000);
  limitDescriptors(server.program, lowestFree(server.program.pid));
  const [from, at] = [cpuMs([server.program.pid]), clock()];
  let slowest = 0;
  for (let round = 0; round < (short ? 3 : 15); round++) {
    slowest = Math.max(slowest, (await turnedAway(context)).ms);
    await hold(1000, 1000);
  }
  measure('callers rejected within', slowest, 'ms', 1000);
  const share = (cpuMs([server.program.pid]) - from) / (clock() - at);
  measure('CPU of the starved server', share * 100, '% of a processor', 30);
  limitDescriptors(server.program, ENOUGH);
  measure('accepted again, after total exhaustion, after', await takesAgain(plane.starved, destination), 'ms', 2000);
}

const serverDescriptors: Row<Plane & { readonly starved: Ways }> = {
  name: 'descriptors-server',
  fault: 'file descriptors of one of 2 servers exhausted',
  holds:
    'no crash; its callers are rejected at once, with the reason unless that needs a descriptor; its agents serve the other server; recovers by itself',
  bounds: { dialMs: 1000 },
  skip: prlimitMissing,
  topology: twoServersOneDoor,
  async inject(context) {
    const [server] = context.plane.gateways as [Member];
    await useUp(context, server);
    await useUpAll(context, server);
  },
};

export const descriptorRows: readonly Row[] = [agentDescriptors, serverDescriptors];
