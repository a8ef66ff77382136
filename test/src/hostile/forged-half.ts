import { randomBytes } from 'node:crypto';
import { LinkClient } from '@isthmus/transport';
import {
  type AttachAnswer,
  type AttachClaim,
  type Carrier,
  DialAbort,
  encodeMark,
  type Mark,
  parseDestination,
  planeEvents,
  readMark,
} from '@isthmus/tunnel';
import { type Identity, type Scope, until } from '../harness/index.ts';
import { peerSocket } from './gateway-link.ts';

/** What an attach claims, if it is not the truth. */
export type Claim = Partial<AttachClaim>;

interface Way {
  readonly link: LinkClient;
  /** The session to dial through. */
  readonly session: string;
  /** Default: the default tenant. */
  readonly tenant?: string;
}

/** A link to a hub with a gateway's certificate. */
export async function forgedLink(scope: Scope, port: number, ca: string, identity: Identity): Promise<LinkClient> {
  const socket = await peerSocket(scope, port, ca, identity);
  const gatewayInstance = randomBytes(8).toString('hex');
  const link = new LinkClient({ socket, peer: 'hub', gatewayInstance, events: planeEvents() });
  await link.accepted({ timeout: 60_000 });
  return link;
}

/** A gateway's half of a tunnel. It says what the test tells it to, and acknowledges nothing by itself. */
export class ForgedHalf {
  /** What has arrived on its carriers, the latest first byte at `from`. */
  text = '';
  received = 0;
  /** The agent's last mark. */
  told: Mark | undefined;
  /** The answer to the last attach that was accepted. */
  answer: AttachAnswer | undefined;
  /** Why its last carrier is gone. */
  over: Error | undefined;
  secret = '';
  readonly #authority: string;
  #number = 0;
  #carrier: Carrier | undefined;

  private constructor(authority: string) {
    this.#authority = authority;
  }

  /** Dials. */
  static async begin(way: Way, authority: string): Promise<ForgedHalf> {
    const half = new ForgedHalf(authority);
    const resumeOffer = { halfAtPeer: true };
    const established = await way.link.dial({ ...half.#ask(way), resumeOffer });
    if (!established.resumption) throw new Error('the agent resumes no tunnels');
    half.secret = established.resumption.ticket.secret;
    half.#adopt(established.resumption.carrier);
    return half;
  }

  /** Attaches. The claim is true where it says nothing else. Throws the refusal. */
  async attach(way: Way, untrue: Claim = {}): Promise<void> {
    const { secret, received } = this;
    const claim = { secret, number: ++this.#number, received, taken: 0, ...untrue };
    const { answer, carrier } = await way.link.attach({ ...this.#ask(way), claim, halfAtPeer: true });
    this.answer = answer;
    this.received = answer.from;
    this.#adopt(carrier);
  }

  write(text: string): void {
    this.#carrier?.stream.write(Buffer.from(text));
  }

  acknowledge(taken = this.received): void {
    this.#carrier?.stream.mark(encodeMark({ taken }));
  }

  abort(): void {
    this.#carrier?.drop(new Error('the caller went away'));
  }

  /** Fails unless the tunnel's destination echoes. */
  async echoes(text: string): Promise<void> {
    this.text = '';
    this.write(text);
    await until(() => this.text === text, { what: () => `the echo of ${text}, not ${this.text} (${this.over})` });
  }

  #ask({ session, tenant = 'default' }: Way) {
    return {
      id: randomBytes(8).toString('hex'),
      tenant,
      destination: parseDestination(this.#authority),
      deadline: performance.now() + 30_000,
      session,
      signal: new DialAbort(),
    };
  }

  #adopt(carrier: Carrier): void {
    this.text = '';
    this.over = undefined;
    this.#carrier = carrier;
    // The agent may still say something on earlier ones.
    const isPresent = () => carrier === this.#carrier;
    carrier.deliverTo({
      onData: (bytes) => {
        carrier.stream.consume(bytes.length);
        if (!isPresent()) return;
        this.received += bytes.length;
        if (this.text.length < 1000) this.text += Buffer.from(bytes).toString('latin1', 0, 1000);
      },
      onMark: (payload) => {
        if (isPresent()) this.told = readMark(payload);
      },
      onWritable() {},
      onEnd: () => {
        if (isPresent()) this.over = new Error('it has ended');
      },
      onClose: (code, reason) => {
        const loss = carrier.closed(code, reason);
        if (loss && isPresent()) this.over = loss.reason;
      },
    });
  }
}
