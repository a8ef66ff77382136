import { createInterface } from 'node:readline';
import { answered } from '../../rig/dial.ts';
import { type Hosted, SAME_DESTINATION } from './hosted.ts';

/** How long a dial may take, in milliseconds; the gateway's own limit is lower. */
const DIAL_DEADLINE = 35_000;

/** Results of dials, by what happened to them. */
export interface Outcomes {
  answered: number;
  /** Names that answered, other than the caller's own tenant. */
  readonly crossed: string[];
  readonly failures: string[];
}

export function noOutcomes(): Outcomes {
  return { answered: 0, crossed: [], failures: [] };
}

/** An API server of a tenant: HTTP CONNECT over mutual TLS, with the tenant's own server name and certificate, a connection for each dial. */
export class TenantCaller {
  readonly #tenant: Hosted;

  constructor(tenant: Hosted) {
    this.#tenant = tenant;
  }

  /** Dials one after the other until `isOver`. */
  async dialUntil(isOver: () => boolean, ports: readonly number[], outcomes: Outcomes): Promise<void> {
    for (let dials = 0; !isOver(); dials++) await this.dial(ports[dials % ports.length] as number, outcomes);
  }

  async dial(port: number, outcomes: Outcomes): Promise<void> {
    const { name } = this.#tenant;
    try {
      const answer = await this.#ask(port);
      if (answer === name) outcomes.answered++;
      else outcomes.crossed.push(`${name} reached ${answer}`);
    } catch (error) {
      outcomes.failures.push(`${name}: ${(error as Error).message}`);
    }
  }

  /** @returns the first line from the destination */
  async #ask(port: number): Promise<string> {
    const { caller, trust } = this.#tenant;
    const mtls = { port, ca: trust.cluster.cert, ...caller, serverName: trust.serverName };
    const tunnel = await answered({ grpc: '', connect: '', mtls }, 'mtls', SAME_DESTINATION, DIAL_DEADLINE);
    try {
      for await (const line of createInterface({ input: tunnel, signal: AbortSignal.timeout(DIAL_DEADLINE) }))
        return line;
      throw new Error('closed without an answer');
    } finally {
      tunnel.destroy();
    }
  }
}
