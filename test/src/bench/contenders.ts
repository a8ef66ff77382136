import { Scope } from '../harness/index.ts';
import { PROTOCOLS, type Protocol } from '../rig/dial.ts';
import type { Front } from '../rig/load/messages.ts';
import { haproxy, hub, nobody } from './by-name.ts';
import { type AnpBinaries, type Family, floor, inOne, relays, type Started, splitTiers } from './families.ts';
import type { Kind, Line } from './lines.ts';
import { overPath } from './paths.ts';

/** One way to the destination, as a column of the table. */
export interface Contender {
  readonly name: string;
  readonly kind: Kind;
  /** The name of the processes between. Processes that another load uses too are started once. */
  readonly plane: string;
  /** What starts them. If unset, callers go straight to the destination. */
  readonly family?: Family;
  readonly protocol?: Protocol;
  /** The program that loads it, instead of the bench's own load. */
  readonly planebench?: string;
}

const FRONTS: Readonly<Record<Protocol, string>> = {
  grpc: 'grpc-uds',
  connect: 'connect-uds',
  mtls: 'connect-tcp-mtls',
};

export interface Programs {
  readonly anp?: AnpBinaries;
  readonly planebench?: string;
  /** HAProxy's program. */
  readonly haproxy?: string | undefined;
  /** TCP's congestion control on paths. */
  readonly tcp?: string | undefined;
}

const FOR_PLANEBENCH: readonly Kind[] = ['direct', 'server', 'split', 'anp', 'floor'];

export function contenders(programs: Programs): Contender[] {
  const { planebench } = programs;
  const own = ownLoad(programs);
  if (!planebench) return own;
  // Relays lead to the bench's own destination, whose protocol planebench does not know.
  const again = own.filter(({ kind }) => FOR_PLANEBENCH.includes(kind)).map((each) => ({ ...each, planebench }));
  return [...own, ...again.map((each) => ({ ...each, name: `${each.name} (planebench)` }))];
}

function ownLoad({ anp, haproxy: other, tcp }: Programs): Contender[] {
  const through = (kind: Kind, prefix: string, family: (protocol: Protocol) => Family) =>
    PROTOCOLS.map((protocol) => ({ name: prefix + FRONTS[protocol], kind, protocol, family: family(protocol) }));
  const all: Omit<Contender, 'plane'>[] = [
    { name: 'direct', kind: 'direct' },
    { name: 'relays-2', kind: 'relays', family: relays(2) },
    { name: 'relays-3', kind: 'relays', family: relays(3) },
    ...through('server', '', () => inOne()),
    ...through('split', 'split-', () => splitTiers(false)),
    ...through('split', 'split-sockets-', () => splitTiers(true)),
    ...(anp ? through('anp', 'anp-', (protocol) => inOne({ anp, protocol })) : []),
    ...FLOORS,
    { name: 'direct', kind: 'by-name', family: nobody },
    { name: 'isthmus', kind: 'by-name', family: hub },
    ...(other ? [{ name: 'haproxy', kind: 'by-name', family: haproxy(other) } as const] : []),
    { name: 'tcp', kind: 'path', family: overPath('destination', tcp) },
    { name: 'isthmus', kind: 'path', protocol: 'connect', family: overPath('agent', tcp) },
    ...(anp ? [{ name: 'anp', kind: 'path', protocol: 'connect', family: overPath('agent', tcp, anp) } as const] : []),
  ];
  // Each way in has its own plane, as each API server has one: V8 optimises for the one kind of caller that it has seen.
  return all.map((each) => ({ ...each, plane: each.name }));
}

/** Bare sockets: what this runtime takes to accept a caller, and to connect onward as well. */
const FLOORS = (['connect', 'mtls'] as const).flatMap((protocol) =>
  [false, true].map((onward) => {
    const name = `floor-${FRONTS[protocol]}${onward ? '' : '-accept'}`;
    return { name, kind: 'floor', protocol, family: floor(protocol, onward) } as const;
  }),
);

/** The planes of a run. Each is started when first needed, and then does one work after the other. */
export class Planes implements AsyncDisposable {
  readonly #scope = new Scope();
  readonly #destinationPort: number;
  readonly #running = new Map<string, Started>();
  readonly #warm = new Set<string>();

  constructor(destinationPort: number) {
    this.#destinationPort = destinationPort;
  }

  async of({ plane, family }: Contender, line: Line): Promise<Started> {
    if (!family) return NOTHING;
    let started = this.#running.get(plane);
    if (!started) {
      started = await family(this.#scope, this.#destinationPort, line);
      this.#running.set(plane, started);
    }
    return started;
  }

  /** Whether the processes must do this work once before it is measured, since new code is slow. The call marks the work as done. */
  isCold({ name, kind, family }: Contender, { work, fresh }: Line): boolean {
    if (!family || fresh || kind === 'by-name') return false;
    // By its name: V8 has compiled for what one load sends, and compiles again for the other.
    const done = `${name} ${work}`;
    const cold = !this.#warm.has(done);
    this.#warm.add(done);
    return cold;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#scope[Symbol.asyncDispose]();
  }
}

const NOTHING: Started = { groups: {} };

export function frontOf({ protocol }: Contender, { door, port, named, destination }: Started): Front {
  if (port !== undefined) return { kind: 'forward', port, ...(named && { named }) };
  if (door && protocol) return { kind: 'door', door, protocol };
  return { kind: 'direct', ...(destination && { host: destination.host }) };
}
