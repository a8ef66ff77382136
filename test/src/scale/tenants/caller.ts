import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
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
  async dialUntil(isOver: () => boolean, ports: readonly number[], outcomes: Outcomes, pauseMs: number): Promise<void> {
    for (let dials = 0; !isOver(); dials++) {
      await this.dial(ports[dials % ports.length] as number, outcomes);
      if (pauseMs > 0) await pause(pauseMs);
    }
  }

  async dial(port: number, outcomes: Outcomes): Promise<void> {
    const { name } = this.#tenant;
    try {
      const answer = await this.#ask(port, this.#tenant.trust.serverName);
      if (answer === name) outcomes.answered++;
      else outcomes.crossed.push(`${name} reached ${answer}`);
    } catch (error) {
      outcomes.failures.push(`${name}: ${(error as Error).message}`);
    }
  }

  /** Dials as another tenant, by its server name. @returns what answered, or how it was refused */
  async dialAs({ trust }: Hosted, port: number): Promise<string> {
    // The other tenant's certificate would not verify: an attacker does not mind.
    return this.#ask(port, trust.serverName, true).catch((error: Error) => `refused: ${error.message}`);
  }

  /** @returns the first line from the destination */
  async #ask(port: number, serverName: string, trusting = false): Promise<string> {
    const { caller, trust } = this.#tenant;
    const mtls = { port, ca: trust.cluster.cert, ...caller, serverName, trusting };
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
