import { timingSafeEqual } from 'node:crypto';
import { type Clock, OpenTable, randomHex, systemClock } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import { callerName, type DialRequest } from '../dial.ts';
import type { TunnelEnd } from '../end.ts';
import { SessionLost } from '../errors.ts';
import { TokenBucket } from '../limits/limits.ts';
import {
  type AttachAnswer,
  type AttachClaim,
  type AttachPosition,
  AttachRefused,
  type Carrier,
  ENDED_TEXT,
  type ResumeTicket,
} from './carrier.ts';
import { Half } from './half.ts';
import { type Halves, halvesOf, type ResumeOptions } from './halves.ts';
import { type GatewayLoss, GatewayProcesses } from './processes.ts';

/** The dial of a tunnel, as far as an attach has to name it again. */
type Dialled = Pick<DialRequest, 'tenant' | 'destination' | 'caller' | 'callerName'>;

type Begun = Dialled & Pick<DialRequest, 'resumeOffer'>;

/** The half of one tunnel beside the destination's socket. It waits until the gateway's half attaches a new carrier. */
export class AgentTunnel extends Half {
  readonly tenant: string;
  readonly secret: string;
  readonly gatewayInstance: string | undefined;
  readonly #destination: DialRequest['destination'];
  readonly #caller: string;
  readonly #gone: (tunnel: AgentTunnel) => void;
  /** Created by the first attach, because most tunnels see none. */
  #attaches: TokenBucket | undefined;
  /** The number of the last attach. */
  #number = 0;

  constructor(begun: Begun, secret: string, halves: Halves, gone: (tunnel: AgentTunnel) => void) {
    // A destination's reset discards what has not been read of it.
    super(halves, halves.keeping.base);
    this.tenant = begun.tenant;
    this.gatewayInstance = begun.resumeOffer?.gatewayInstance;
    this.#destination = begun.destination;
    this.#caller = callerName(begun);
    this.secret = secret;
    this.#gone = gone;
  }

  /** Whether an attach names the tunnel as its dial did. Another caller that has learnt the secret does not. */
  isNamedBy(dial: Dialled): boolean {
    const { host, port } = this.#destination;
    const { tenant, destination } = dial;
    return (
      tenant === this.tenant &&
      destination.host === host &&
      destination.port === port &&
      callerName(dial) === this.#caller
    );
  }

  /** Counts an attach. @returns whether it is allowed */
  mayAttach({ now }: Clock): boolean {
    this.#attaches ??= new TokenBucket(now);
    return this.#attaches.take(1, { perSecond: TUNNEL.attachesPerSecond, atOnce: TUNNEL.attachesAtOnce });
  }

  protected override gone(): void {
    this.#gone(this);
  }

  /**
   * Goes on with a new carrier.
   * @param accept sends the answer. Nothing else may leave on the carrier before it
   * @throws AttachRefused. The half then stays as it was
   */
  attach(request: AttachPosition, accept: (answer: AttachAnswer) => Carrier): void {
    this.#check(request);
    this.#number = request.number;
    const { position, state } = this;
    const carrier = accept({ ...position, from: this.outgoing.next(request.received) });
    this.adopt(carrier, request, position.received);
    if (state === 'complete') carrier.stream.endLate();
  }

  #check(request: AttachPosition): void {
    const reason = this.untoldEnd;
    if (reason)
      throw new AttachRefused(`${ENDED_TEXT}${reason.message}`, {
        final: true,
        ordinary: true,
        cause: reason,
      });
    if (this.state === 'gone') throw new AttachRefused('the tunnel has ended', { final: true, ordinary: true });
    const { number } = request;
    if (number <= this.#number)
      throw new AttachRefused(`attach ${number} came after attach ${this.#number}`, {
        final: false,
        ordinary: true,
      });
    const fault = this.faultOf(request);
    if (fault !== undefined)
      throw new AttachRefused(`the gateway's end of the tunnel is in disorder: ${fault}`, { final: true });
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

  readonly #gateways: GatewayProcesses;

  constructor(options: ResumeOptions, clock: Clock = systemClock) {
    this.#halves = halvesOf(options, clock);
    this.#gateways = new GatewayProcesses(clock, (gateway, afterMs) => this.#endOf(gateway, afterMs));
  }

  get size(): number {
    return this.#tunnels.size;
  }

  /** Bytes that new carriers would have to send again. Summed up at each call. */
  get kept(): number {
    let bytes = 0;
    for (const { kept } of this.#tunnels.values()) bytes += kept;
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

  /** Begins a tunnel of a dial. @param answer answers the dial with the ticket. Returns the answer's stream */
  begin(begun: Begun, answer: (ticket: ResumeTicket) => Carrier): TunnelEnd {
    const secret = randomHex(16);
    const carrier = answer({ instance: this.instance, secret });
    const tunnel = new AgentTunnel(begun, secret, this.#halves, this.#gone);
    this.#tunnels.set(nameOf(secret), tunnel);
    tunnel.start(carrier);
    return tunnel;
  }

  #endOf(gateway: string, afterMs: number): void {
    const reason = new SessionLost('the gateway has closed all its connections', { by: 'gateway' });
    for (const tunnel of [...this.#tunnels.values()]) {
      if (tunnel.gatewayInstance !== gateway) continue;
      if (afterMs === 0) tunnel.abort(reason);
      else if (!tunnel.attached) tunnel.expireAfter(afterMs, reason);
    }
  }

  /**
   * Goes on with a tunnel.
   * @param answer answers the attach. Returns the answer's stream
   * @throws AttachRefused. The tunnel then stays as it was
   */
  attach(asked: Dialled & { readonly claim: AttachClaim }, answer: (attached: AttachAnswer) => Carrier): void {
    const { claim } = asked;
    const tunnel = this.#tunnels.get(nameOf(claim.secret));
    // A peer without the secret must not learn that there is such a tunnel.
    const [known, shown] = [Buffer.from(tunnel?.secret ?? ''), Buffer.from(claim.secret)];
    if (!tunnel?.isNamedBy(asked) || known.length !== shown.length || !timingSafeEqual(known, shown))
      throw new AttachRefused('this agent has no such tunnel', { final: true });
    if (!tunnel.mayAttach(this.#halves.clock))
      throw new AttachRefused(`more than ${TUNNEL.attachesPerSecond} attaches a second of one tunnel`, {
        final: false,
      });
    tunnel.attach(claim, answer);
  }
}

/** The part of a tunnel's secret by which it is found. The rest is compared in constant time. */
function nameOf(secret: string): string {
  return secret.slice(0, 16);
}
