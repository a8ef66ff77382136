import { encodeHead, type Head, type Http2Stream, PendingStream } from '@isthmus/http2';
import { extended, type RandomSet } from '@isthmus/runtime';
import {
  type AgentTunnels,
  type AttachClaim,
  AttachRefused,
  asDialError,
  DialError,
  type DialRequest,
  type Established,
  printable,
  type ResumeGrant,
  type ResumeRequest,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { type ServeDialOptions, type ServedDial, serveDial, type Waiter } from '../dial/serve-dial.ts';
import { type Answer, answerHead, readRequest, refusalHead, underWayHead } from './head.ts';
import { type CarrierLink, StreamCarrier } from './stream-carrier.ts';
import { asDuplex, endOfStream } from './tunnel-end.ts';

/** 102 (RFC 2518 section 10.1): the dial is under way, and its answer will take a while. */
const UNDER_WAY = encodeHead({ ':status': 102 });

/** A gateway's patience covers a shorter round trip between hub and agent. In milliseconds. */
const LONG_ROUND_TRIP_MS = 50;

/** An agent does not name itself in its answer, because its hub knows the names. */
const NO_NAMES: Answer = { agentId: '', sessionId: '', hubId: '', timing: {} };

export interface ServedDialsOptions extends ServeDialOptions {
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** The tunnels that end here and can be resumed, at an agent. Unset at a hub, which passes on what their ends say. */
  readonly tunnels?: AgentTunnels;
  /** The only tenant whose dials are served. Unset: every tenant's. */
  readonly tenant?: string;
}

/** The link whose dials are served. */
interface ServingLink {
  /** The streams of its tunnels and pending dials. Each dial adds its own; `carriers.closed` takes it out. */
  readonly streams: RandomSet<Http2Stream>;
  readonly carriers: CarrierLink;
  /** Called when a dial shows that the other side is a gateway. @param gateway its process */
  readonly direct: (gateway: string | undefined) => void;
}

/** Serves the dials of one link: reads each request, and answers it with a tunnel or a refusal. */
export class ServedDials {
  readonly #options: ServedDialsOptions;
  readonly #link: ServingLink;

  constructor(options: ServedDialsOptions, link: ServingLink) {
    this.#options = options;
    this.#link = link;
  }

  async serve(stream: Http2Stream, head: Head): Promise<void> {
    const { role, events, peer } = this.#options;
    const closed = () => {
      this.#link.carriers.closed(stream);
      request?.signal.abort(abandonment(request));
    };
    const asked = new PendingStream(stream, { closed });
    let request: ServedDial | undefined;
    try {
      request = readRequest(head, progressOn(stream));
      this.#checkTenant(request);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
      this.#refuse(asked, asDialError(error));
      return;
    }
    this.#link.streams.add(stream);
    if (request.resume?.attach && role === 'agent') this.#attach(asked, request, request.resume.attach);
    else await this.#dial(asked, request);
  }

  async #dial(asked: PendingStream, request: ServedDial): Promise<void> {
    const { stream } = asked;
    const waiter: Waiter = {
      accept: (established) => (stream.closed ? undefined : this.#accepted(asked, established, request)),
      refuse: (error) => this.#refuse(asked, error),
    };
    await serveDial(request, waiter, this.#options);
  }

  /** Answers a dial that succeeded. */
  #accepted(asked: PendingStream, established: Established, { tenant, resume }: DialRequest): TunnelEnd {
    const { peer, tunnels } = this.#options;
    if (!resume || !tunnels) {
      asked.stream.answer(encodeHead(answerHead(established)));
      return endOfStream(asDuplex(asked, this.#link.carriers.closed), peer, established.resume !== undefined);
    }
    const { direct, gateway } = resume;
    if (direct) this.#link.direct(gateway);
    const answer = (grant: ResumeGrant) => this.#carrier(asked, extended(established, { resume: { grant } }), resume);
    return tunnels.begin({ tenant, gateway }, answer);
  }

  /** Goes on with a tunnel that ends here. */
  #attach(asked: PendingStream, { tenant, resume = {} }: DialRequest, attach: AttachClaim): void {
    const { tunnels, events, peer } = this.#options;
    try {
      if (!tunnels) throw new AttachRefused('this agent resumes no tunnels', { final: true });
      tunnels.attach({ tenant, attach }, (attached) =>
        this.#carrier(asked, { ...NO_NAMES, resume: { attached } }, resume),
      );
    } catch (error) {
      if (!(error instanceof AttachRefused)) throw error;
      const { message, final, ordinary } = error;
      if (!ordinary) events.emit('refused', 'attach', peer, error);
      this.#refuse(asked, new DialError('connection_terminated', message, { retryable: !final, cause: error }));
    }
  }

  /** Answers, and makes the answer's stream a carrier. */
  #carrier(asked: PendingStream, answer: Answer, { direct = false }: ResumeRequest): StreamCarrier {
    asked.stream.answer(encodeHead(answerHead(answer)));
    return new StreamCarrier(asked, this.#link.carriers, direct);
  }

  #refuse(asked: PendingStream, error: DialError): void {
    if (asked.stream.closed) return;
    const stream = asDuplex(asked, this.#link.carriers.closed);
    stream.respond(refusalHead(error), { endStream: true });
    stream.resume();
  }

  #checkTenant({ tenant }: ServedDial): void {
    const { tenant: own = tenant, peer } = this.#options;
    if (tenant === own) return;
    const text = `${peer} dials for tenant ${printable(tenant)}, and this link is of tenant ${own}`;
    throw new DialError('http_request_denied', text);
  }
}

/** Tells the dialling side that the dial is on its way. */
function progressOn(stream: Http2Stream): Pick<DialRequest, 'acknowledged' | 'underWay'> {
  return {
    acknowledged() {
      if (!stream.answered) stream.headers(UNDER_WAY);
    },
    underWay(roundTripMs) {
      if (roundTripMs >= LONG_ROUND_TRIP_MS && !stream.answered) stream.headers(encodeHead(underWayHead(roundTripMs)));
    },
  };
}

/** Why nobody waits for the answer any more. If it was an attach, its tunnel must not end with it. */
function abandonment({ resume }: DialRequest): Error {
  const text = 'the dialling side went away';
  return resume?.attach ? new SessionLost(text) : new Error(text);
}
