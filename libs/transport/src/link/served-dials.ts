import { extended, type RandomSet } from '@isthmus/runtime';
import {
  type AgentTunnels,
  type Attach,
  type Attached,
  AttachRefused,
  asDialError,
  type DialAbort,
  DialError,
  type DialRequest,
  type Established,
  printable,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { encodeHead, type Head, type Http2Stream, PendingStream } from '@isthmus/wire';
import { type ServeDialOptions, type ServedDial, serve, serveDial, type Waiter } from '../dial/serve-dial.ts';
import {
  answerHead,
  attachedHead,
  readAttach,
  readRequest,
  refusalHead,
  type ServedAttach,
  underWayHead,
} from './head.ts';
import { asDuplex, type CarrierLink, endOfStream, ResumableEnd, StreamCarrier } from './tunnel-end.ts';

/** 102 (RFC 2518 section 10.1): the dial is under way, and its answer will take a while. */
const UNDER_WAY = encodeHead({ ':status': 102 });

/** A gateway's patience covers a shorter round trip between hub and agent. In milliseconds. */
const LONG_ROUND_TRIP_MS = 50;

/** An agent does not name itself in its answer, because its hub knows the names. */
const NO_NAMES = { agentId: '', sessionId: '', hubId: '' };

const GONE = 'the dialling side went away';

export interface ServedDialsOptions extends ServeDialOptions {
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** The tunnels that end here and can be resumed, at an agent. Unset at a hub, which passes on what their ends say. */
  readonly tunnels?: AgentTunnels;
  /** Passes attaches on, at a hub. Unset at an agent. */
  readonly attach?: Attach;
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

/** A stream that was opened, before its answer. */
interface Asked {
  readonly pending: PendingStream;
  /** Of the request, once it was read. */
  signal: DialAbort | undefined;
}

/** Serves the dials and attaches of one link: reads each request, and answers it with a tunnel or a refusal. */
export class ServedDials {
  readonly #options: ServedDialsOptions;
  readonly #link: ServingLink;

  constructor(options: ServedDialsOptions, link: ServingLink) {
    this.#options = options;
    this.#link = link;
  }

  /** Serves a dial. */
  async dial(stream: Http2Stream, head: Head): Promise<void> {
    const asked = this.#asked(stream, () => new Error(GONE));
    const request = this.#read(asked, () => readRequest(head, progressOn(stream)));
    if (!request) return;
    const { tunnels } = this.#options;
    // What a hub passes on does not come from the gateway itself.
    if (request.resume && !tunnels) request.resume = { ...request.resume, direct: false };
    const waiter: Waiter = {
      accept: (established) => (stream.closed ? undefined : this.#accepted(asked, established, request)),
      refuse: (error) => this.#refuse(asked, error),
    };
    await serveDial(request, waiter, this.#options);
  }

  /** Answers a dial that succeeded. */
  #accepted({ pending }: Asked, established: Established, { tenant, resume }: DialRequest): TunnelEnd {
    const { peer, tunnels } = this.#options;
    const { carriers } = this.#link;
    if (!resume || !tunnels) {
      const grant = established.resume?.grant;
      pending.stream.answer(encodeHead(answerHead(extended(established, { grant }))));
      return grant ? new ResumableEnd(pending, carriers) : endOfStream(asDuplex(pending, carriers.closed), peer);
    }
    const { direct, gateway } = resume;
    if (direct) this.#link.direct(gateway);
    return tunnels.begin({ tenant, gateway }, (grant) => {
      pending.stream.answer(encodeHead(answerHead(extended(established, { grant }))));
      return new StreamCarrier(pending, carriers, direct);
    });
  }

  /** Serves an attach. A tunnel that ends here goes on; to one that ends elsewhere the attach is passed on. */
  async attach(stream: Http2Stream, head: Head): Promise<void> {
    // The tunnel must not end with it.
    const asked = this.#asked(stream, () => new SessionLost(GONE));
    const request = this.#read(asked, () => readAttach(head, progressOn(stream)));
    const { attach } = this.#options;
    if (request && attach) await this.#passOn(asked, request, attach);
    else if (request) this.#goOn(asked, request);
  }

  async #passOn(asked: Asked, request: ServedAttach, attach: Attach): Promise<void> {
    const { stream } = asked.pending;
    const waiter: Waiter<Attached> = {
      accept: (attached) => {
        if (stream.closed) return undefined;
        stream.answer(encodeHead(attachedHead(attached)));
        return new ResumableEnd(asked.pending, this.#link.carriers);
      },
      refuse: (error) => this.#refuse(asked, error),
    };
    // What a hub passes on does not come from the gateway itself.
    request.direct = false;
    await serve(request, attach, waiter, this.#options);
  }

  /** Goes on with a tunnel that ends here. */
  #goOn(asked: Asked, request: ServedAttach): void {
    const { tunnels, events, peer } = this.#options;
    try {
      if (!tunnels) throw new AttachRefused('this agent resumes no tunnels', { final: true });
      tunnels.attach(request, (answer) => {
        asked.pending.stream.answer(encodeHead(attachedHead({ ...NO_NAMES, answer })));
        return new StreamCarrier(asked.pending, this.#link.carriers, request.direct);
      });
    } catch (error) {
      if (!(error instanceof AttachRefused)) throw error;
      const { message, final, ordinary } = error;
      if (!ordinary) events.emit('refused', 'attach', peer, error);
      this.#refuse(asked, new DialError('connection_terminated', message, { retryable: !final, cause: error }));
    }
  }

  /** @param reason makes the reason why nobody waits for the answer any more, once the stream has closed */
  #asked(stream: Http2Stream, reason: () => Error): Asked {
    const asked: Asked = {
      pending: new PendingStream(stream, {
        closed: () => {
          this.#link.carriers.closed(stream);
          asked.signal?.abort(reason());
        },
      }),
      signal: undefined,
    };
    return asked;
  }

  /** Reads the request, or refuses it. */
  #read<Request extends ServedDial | ServedAttach>(asked: Asked, read: () => Request): Request | undefined {
    const { role, events, peer } = this.#options;
    try {
      const request = read();
      asked.signal = request.signal;
      this.#checkTenant(request);
      this.#link.streams.add(asked.pending.stream);
      return request;
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
      this.#refuse(asked, asDialError(error));
      return undefined;
    }
  }

  #refuse({ pending }: Asked, error: DialError): void {
    if (pending.stream.closed) return;
    const stream = asDuplex(pending, this.#link.carriers.closed);
    stream.respond(refusalHead(error), { endStream: true });
    stream.resume();
  }

  #checkTenant({ tenant }: Pick<ServedDial, 'tenant'>): void {
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
