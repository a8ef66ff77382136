import { timingSafeEqual } from 'node:crypto';
import { type Clock, OpenTable, randomHex, systemClock } from '@isthmus/runtime';
import type { TunnelEnd } from '../dial/dial.ts';
import { SessionLost } from '../dial/errors.ts';
import { TokenBucket } from '../limits/token-bucket.ts';
import { AgentHalf } from './agent-half.ts';
import { type AttachAnswer, AttachRefused, type Carrier } from './carrier.ts';
import { HalfStream } from './half-stream.ts';
import { type GatewayLoss, HungUpGateways } from './hung-up-gateways.ts';
import { type Halves, halvesOf, type ResumeOptions } from './options.ts';
import type { AttachClaim, ResumeGrant } from './request.ts';

/** Attaches of one tunnel. A gateway asks again after 5 ms to 1 s. */
const ATTACHES = { perSecond: 5, atOnce: 10 };

/** Whose dial begins a tunnel. */
interface Begun {
  readonly tenant: string;
  readonly gateway?: string | undefined;
}

/** An agent's end of a tunnel that may be resumed. */
class AgentTunnel extends HalfStream {
  override readonly half: AgentHalf;
  readonly tenant: string;
  readonly secret: string;
  /** The gateway's process. */
  readonly gateway: string | undefined;
  readonly #gone: (tunnel: AgentTunnel) => void;
  /** Set by the first attach: most tunnels see none. */
  #attaches: TokenBucket | undefined;

  constructor({ tenant, gateway }: Begun, secret: string, halves: Halves, gone: (tunnel: AgentTunnel) => void) {
    super();
    this.tenant = tenant;
    this.gateway = gateway;
    this.secret = secret;
    this.#gone = gone;
    this.half = new AgentHalf(this, halves);
  }

  /** Counts an attach. @returns whether so many are allowed */
  mayAttach({ now }: Clock): boolean {
    this.#attaches ??= new TokenBucket(now);
    return this.#attaches.take(1, ATTACHES);
  }

  override gone(): void {
    this.#gone(this);
  }
}

/** The tunnels of an agent's process that may be resumed. */
export class AgentTunnels {
  /** Names this process. Another one, of the same agent, does not know these tunnels. */
  readonly instance = randomHex(8);
  readonly #halves: Halves;
  readonly #gone = ({ secret }: AgentTunnel) => void this.#tunnels.delete(nameOf(secret));
  /** By name: two attempts of one dial may both have begun a tunnel. */
  readonly #tunnels = new OpenTable<string, AgentTunnel>();

  readonly #gateways: HungUpGateways;

  constructor(options: ResumeOptions, clock: Clock = systemClock) {
    this.#halves = halvesOf(options, clock);
    this.#gateways = new HungUpGateways(clock, (gateway) => this.#endOf(gateway));
  }

  get size(): number {
    return this.#tunnels.size;
  }

  /** Bytes that would be sent again on new carriers. Adds them up anew. */
  get kept(): number {
    let bytes = 0;
    for (const { half } of this.#tunnels.values()) bytes += half.kept;
    return bytes;
  }

  /** There is a link to a hub. */
  linked(link: object): void {
    this.#gateways.came(link);
  }

  /** @param loss set if the process at the link's other side was a gateway too, and did not say goodbye */
  unlinked(link: object, loss: GatewayLoss | undefined): void {
    this.#gateways.went(link);
    if (loss) this.#gateways.report(loss, link);
  }

  /** The hub at the link's other side has lost a gateway. Its tunnels end if it is dead. */
  hungUp(loss: GatewayLoss, link: object): void {
    this.#gateways.report(loss, link);
  }

  /** @param answer answers the dial with the grant, and makes the stream of the answer a carrier */
  begin(begun: Begun, answer: (grant: ResumeGrant) => Carrier): TunnelEnd {
    const secret = randomHex(16);
    const tunnel = new AgentTunnel(begun, secret, this.#halves, this.#gone);
    this.#tunnels.set(nameOf(secret), tunnel);
    tunnel.half.start(answer({ instance: this.instance, secret }));
    return tunnel;
  }

  #endOf(gateway: string): void {
    const reason = new SessionLost('the gateway has closed all its connections');
    for (const tunnel of [...this.#tunnels.values()]) if (tunnel.gateway === gateway) tunnel.half.abort(reason);
  }

  /**
   * @param answer answers the attach, and makes the stream of the answer a carrier
   * @throws AttachRefused, and nothing has changed
   */
  attach(
    { tenant, attach }: { readonly tenant: string; readonly attach: AttachClaim },
    answer: (attached: AttachAnswer) => Carrier,
  ): void {
    const tunnel = this.#tunnels.get(nameOf(attach.secret));
    // A peer that does not know the secret does not learn that there is such a tunnel.
    if (tunnel?.tenant !== tenant || !isSame(tunnel.secret, attach.secret))
      throw new AttachRefused('this agent has no such tunnel', { final: true });
    if (!tunnel.mayAttach(this.#halves.clock))
      throw new AttachRefused(`more than ${ATTACHES.perSecond} attaches a second of one tunnel`, { final: false });
    tunnel.half.attach(attach, answer);
  }
}

/** The part of a tunnel's secret by which it is found. The rest is compared in constant time. */
function nameOf(secret: string): string {
  return secret.slice(0, 16);
}

function isSame(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
