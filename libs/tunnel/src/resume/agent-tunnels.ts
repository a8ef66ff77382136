import { timingSafeEqual } from 'node:crypto';
import { type Clock, OpenTable, randomHex, systemClock } from '@isthmus/runtime';
import type { TunnelEnd } from '../dial/dial.ts';
import { SessionLost } from '../dial/errors.ts';
import { TokenBucket } from '../limits/token-bucket.ts';
import { AgentHalf } from './agent-half.ts';
import { type AttachAnswer, type AttachClaim, AttachRefused, type Carrier, type ResumeGrant } from './carrier.ts';
import { HalfStream } from './half-stream.ts';
import { type GatewayLoss, HungUpGateways } from './hung-up-gateways.ts';
import { type Halves, halvesOf, type ResumeOptions } from './options.ts';

/** How often a tunnel may be attached. A gateway tries again after 5 ms to 1 s. */
const ATTACH_RATE = { perSecond: 5, atOnce: 10 };

/** Who dialled a tunnel. */
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
  /** Created by the first attach, because most tunnels see none. */
  #attaches: TokenBucket | undefined;

  constructor({ tenant, gateway }: Begun, secret: string, halves: Halves, gone: (tunnel: AgentTunnel) => void) {
    super();
    this.tenant = tenant;
    this.gateway = gateway;
    this.secret = secret;
    this.#gone = gone;
    this.half = new AgentHalf(this, halves);
  }

  /** Counts an attach. @returns whether it is allowed */
  mayAttach({ now }: Clock): boolean {
    this.#attaches ??= new TokenBucket(now);
    return this.#attaches.take(1, ATTACH_RATE);
  }

  override gone(): void {
    this.#gone(this);
  }
}

/** The tunnels of an agent's process that can be resumed. */
export class AgentTunnels {
  /** Names this process. Another process of the same agent does not know these tunnels. */
  readonly instance = randomHex(8);
  readonly #halves: Halves;
  readonly #gone = ({ secret }: AgentTunnel) => void this.#tunnels.delete(nameOf(secret));
  /** By `nameOf` their secrets. Dial ids would not do: two attempts of one dial may both have begun a tunnel. */
  readonly #tunnels = new OpenTable<string, AgentTunnel>();

  readonly #gateways: HungUpGateways;

  constructor(options: ResumeOptions, clock: Clock = systemClock) {
    this.#halves = halvesOf(options, clock);
    this.#gateways = new HungUpGateways(clock, (gateway) => this.#endOf(gateway));
  }

  get size(): number {
    return this.#tunnels.size;
  }

  /** Bytes that new carriers would have to send again. Summed up at each call. */
  get kept(): number {
    let bytes = 0;
    for (const { half } of this.#tunnels.values()) bytes += half.kept;
    return bytes;
  }

  /** Call when a link to a hub opens. */
  linked(link: object): void {
    this.#gateways.came(link);
  }

  /** Call when a link ends. @param loss set if the process at its other side was a gateway too, and did not say goodbye */
  unlinked(link: object, loss: GatewayLoss | undefined): void {
    this.#gateways.went(link);
    if (loss) this.#gateways.report(loss, link);
  }

  /** Call when the hub of a link has lost a gateway. If the gateway is dead, its tunnels end. */
  hungUp(loss: GatewayLoss, link: object): void {
    this.#gateways.report(loss, link);
  }

  /** Begins a tunnel. @param answer answers the dial with the grant, and makes the answer's stream a carrier */
  begin(begun: Begun, answer: (grant: ResumeGrant) => Carrier): TunnelEnd {
    const secret = randomHex(16);
    const tunnel = new AgentTunnel(begun, secret, this.#halves, this.#gone);
    this.#tunnels.set(nameOf(secret), tunnel);
    tunnel.half.start(answer({ instance: this.instance, secret }));
    return tunnel;
  }

  #endOf(gateway: string): void {
    const reason = new SessionLost('the gateway has closed all its connections', { by: 'gateway' });
    for (const tunnel of [...this.#tunnels.values()]) if (tunnel.gateway === gateway) tunnel.half.abort(reason);
  }

  /**
   * Goes on with a tunnel.
   * @param answer answers the attach, and makes the answer's stream a carrier
   * @throws AttachRefused. The tunnel then stays as it was
   */
  attach(
    { tenant, claim }: { readonly tenant: string; readonly claim: AttachClaim },
    answer: (attached: AttachAnswer) => Carrier,
  ): void {
    const tunnel = this.#tunnels.get(nameOf(claim.secret));
    // A peer without the secret must not learn that there is such a tunnel.
    if (tunnel?.tenant !== tenant || !isSame(tunnel.secret, claim.secret))
      throw new AttachRefused('this agent has no such tunnel', { final: true });
    if (!tunnel.mayAttach(this.#halves.clock))
      throw new AttachRefused(`more than ${ATTACH_RATE.perSecond} attaches a second of one tunnel`, { final: false });
    tunnel.half.attach(claim, answer);
  }
}

/** The part of a tunnel's secret by which it is found. The rest is compared in constant time. */
function nameOf(secret: string): string {
  return secret.slice(0, 16);
}

function isSame(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
