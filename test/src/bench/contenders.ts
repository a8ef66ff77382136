import { Scope } from '../harness/index.ts';
import { PROTOCOLS, type Protocol } from '../rig/door.ts';
import type { Front } from '../rig/load/messages.ts';
import {
  type AnpBinaries,
  allInOne,
  anpPair,
  type Family,
  farAgent,
  farRelay,
  farWithoutResume,
  floor,
  goAgent,
  onNode,
  relays,
  type Started,
  splitOverSockets,
  splitTiers,
  tenants,
  tenantsApart,
  traced,
  withoutResume,
} from './families.ts';
import type { Kind, Line } from './lines.ts';

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

/** Another Node to run the programs on. */
export interface OtherNode {
  readonly path: string;
  readonly version: string;
}

export interface Programs {
  readonly anp?: AnpBinaries;
  readonly node?: OtherNode;
  readonly planebench?: string;
}

const FOR_PLANEBENCH: readonly Kind[] = ['direct', 'server', 'split', 'anp', 'floor', 'node'];

export function contenders({ anp, node, planebench }: Programs): Contender[] {
  const own = ownLoad(anp, node);
  if (!planebench) return own;
  // Relays lead to the bench's own destination, whose protocol planebench does not know.
  const again = own.filter(({ kind }) => FOR_PLANEBENCH.includes(kind)).map((each) => ({ ...each, planebench }));
  return [...own, ...again.map((each) => ({ ...each, name: `${each.name} (planebench)` }))];
}

function ownLoad(anp?: AnpBinaries, node?: OtherNode): Contender[] {
  const through = (kind: Kind, prefix: string, family: (protocol: Protocol) => Family) =>
    PROTOCOLS.map((protocol) => ({ name: prefix + FRONTS[protocol], kind, protocol, family: family(protocol) }));
  const all: Omit<Contender, 'plane'>[] = [
    { name: 'direct', kind: 'direct' },
    { name: 'relays-2', kind: 'relays', family: twoRelays },
    { name: 'relays-3', kind: 'relays', family: threeRelays },
    ...through('server', '', () => allInOne),
    ...through('split', 'split-', () => splitTiers),
    ...through('split', 'split-sockets-', () => splitOverSockets),
    ...Object.entries(TRACED).map(([name, family]) => ({ name, kind: 'traced', protocol: 'connect', family }) as const),
    { name: 'far-relay', kind: 'far', family: farRelay },
    ...through('far', 'far-', () => farAgent),
    ...Object.entries(TENANTS).map(
      ([name, family]) => ({ name, kind: 'tenants', protocol: 'connect', family }) as const,
    ),
    ...Object.entries(RESUMED).map(([name, [kind, family]]) => ({ name, kind, protocol: 'connect', family }) as const),
    ...(anp ? through('anp', 'anp-', (protocol) => anpPair(anp, protocol)) : []),
    ...floors('floor', 'floor-'),
    ...(node ? through('node', `node${node.version}-`, () => onNode(node.path)) : []),
    ...(node ? floors('node', `node${node.version}-floor-`, node.path) : []),
    ...(anp ? through('mixed', 'go-agent-', () => goAgent(anp)) : []),
    ...(anp ? through('mixed', 'go-pair-', (protocol) => anpPair(anp, protocol)) : []),
  ];
  // Each way in has its own plane, as each API server has one: V8 optimises for the one kind of caller that it has seen.
  return all.map((each) => ({ ...each, plane: each.name }));
}

/** Bare sockets: what this runtime takes to accept a caller, and to connect onward as well. */
function floors(kind: Kind, prefix: string, node?: string) {
  return (['connect', 'mtls'] as const).flatMap((protocol) =>
    [false, true].map((onward) => {
      const name = `${prefix}${FRONTS[protocol]}${onward ? '' : '-accept'}`;
      return { name, kind, protocol, family: floor(protocol, onward, node) };
    }),
  );
}

/** Traces off; traces on, but no dial sampled; traces on, and all exported. */
const TRACED = { 'traces-off': traced(), 'traces-unsampled': traced('always_off'), 'traces-all': traced('always_on') };

/** A quiet tenant and one that floods; both as one tenant, between whose callers nobody is fair; and each with a plane of its own. */
const TENANTS = {
  'two-tenants': tenants(['quiet', 'flood']),
  'one-tenant': tenants(['both']),
  'two-planes': tenantsApart,
};

/** Tunnels that can be resumed, and tunnels that cannot: on this machine, and over a long way. */
const RESUMED = {
  'resume-off': ['resume', withoutResume],
  'resume-on': ['resume', allInOne],
  'far-resume-off': ['far-resume', farWithoutResume],
  'far-resume-on': ['far-resume', farAgent],
} as const;

const twoRelays = relays(2);
const threeRelays = relays(3);

/** The planes of a run. Each is started when first needed, and then does one work after the other. */
export class Planes implements AsyncDisposable {
  readonly #scope = new Scope();
  readonly #destinationPort: number;
  readonly #running = new Map<string, Started>();
  readonly #warm = new Set<string>();

  constructor(destinationPort: number) {
    this.#destinationPort = destinationPort;
  }

  /** @param agents how many simulated agents replace the real one */
  async of({ plane, family }: Contender, agents?: number): Promise<Started> {
    if (!family) return NOTHING;
    let started = this.#running.get(plane);
    if (!started) {
      started = await (await family(this.#scope, this.#destinationPort, agents))();
      await started.ready();
      this.#running.set(plane, started);
    }
    return started;
  }

  /** Whether the processes must do this work once before it is measured, since new code is slow. The call marks the work as done. */
  isCold({ name, family }: Contender, { work, fresh, agents }: Line): boolean {
    if (!family || fresh) return agents !== undefined;
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

const NOTHING: Started = { groups: {}, ready: async () => {} };

export function frontOf({ protocol }: Contender, { door, port }: Started): Front {
  if (port !== undefined) return { kind: 'forward', port };
  if (door && protocol) return { kind: 'door', door, protocol };
  return { kind: 'direct' };
}
