import { isIP, type Socket } from 'node:net';
import { names } from '@isthmus/runtime';
import type { Destination, DialError, DialRequest, DialStep, DialTiming, DialTracer } from '@isthmus/tunnel';

/** The address to connect to. Upstream's agents treat the unspecified address as their own loopback, and API servers rely on it. */
export function targetOf({ host }: Destination): string {
  return host === '::' ? '::1' : host === '0.0.0.0' ? '127.0.0.1' : host;
}

/** The timed steps of an agent's dial: the lookup of a name, and the connection. They are emitted as spans, and sent back. */
export class EndpointSteps {
  readonly refused: (address?: string) => Error | undefined;
  readonly #request: DialRequest;
  readonly #tracer: DialTracer;
  readonly #start = performance.now();
  readonly #named: boolean;
  /** When there was an address to connect to: the start, if the destination is an address. */
  #resolved: number | undefined;

  /** @param refused returns why an address must not be dialled, or a name not be resolved */
  constructor(request: DialRequest, tracer: DialTracer, refused: (address?: string) => Error | undefined) {
    this.refused = refused;
    this.#request = request;
    this.#tracer = tracer;
    this.#named = isIP(request.destination.host) === 0;
    if (!this.#named) this.#resolved = this.#start;
  }

  /** Whether the name has no address yet. */
  get resolving(): boolean {
    return this.#resolved === undefined;
  }

  /**
   * Resolves the name, timed. Only the allowed ones of several addresses are returned: judging the name again later could give another answer.
   * @returns what gives up
   */
  resolve(name: string, done: (error: Error | undefined, addresses: readonly string[]) => void): () => void {
    return names.resolve(name, (error, found) => {
      if (error) return done(error, []);
      this.#resolved = performance.now();
      const refusals = found.map(({ address }) => this.refused(address));
      const allowed = found.filter((_, index) => refusals[index] === undefined);
      const addresses = allowed.map(({ address }) => address);
      done(addresses.length === 0 ? refusals[0] : undefined, addresses);
    });
  }

  connected(socket: Socket): DialTiming {
    const { destination } = this.#request;
    if (!this.#named) return this.#ended({ peer: { address: targetOf(destination), port: destination.port } });
    // This asks the system, which costs a tenth of a connection, so only if there is no other way to know.
    const { remoteAddress: address, remotePort: port } = socket;
    return this.#ended(address !== undefined && port !== undefined ? { peer: { address, port } } : {});
  }

  failed(error: DialError): DialTiming {
    const { destination } = this.#request;
    const { port } = destination;
    const peer = peerOf(error.cause) ?? (this.#named ? undefined : { host: targetOf(destination), port });
    return this.#ended({ error, ...(peer && { peer: { address: peer.host, port: peer.port } }) });
  }

  #ended(outcome: Pick<DialStep, 'error' | 'peer'>): DialTiming {
    const [request, start, resolved, end] = [this.#request, this.#start, this.#resolved, performance.now()];
    if (resolved === undefined) {
      const { error } = outcome;
      this.#tracer.step('agent.dns', request, { start, end, ...(error && { error }) });
      return { dnsMs: end - start };
    }
    if (this.#named) this.#tracer.step('agent.dns', request, { start, end: resolved });
    this.#tracer.step('agent.connect', request, { start: resolved, end, ...outcome });
    return { connectMs: end - resolved, ...(this.#named && { dnsMs: resolved - start }) };
  }
}

/** Node names in an error what it tried to connect to. With several addresses, each has an error of its own. */
function peerOf(cause: unknown): Destination | undefined {
  const first = cause instanceof AggregateError ? cause.errors[0] : cause;
  const { address, port } = (first ?? {}) as { address?: unknown; port?: unknown };
  return typeof address === 'string' && typeof port === 'number' ? { host: address, port } : undefined;
}
