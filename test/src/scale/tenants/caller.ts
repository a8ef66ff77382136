import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { connect, createSecureContext, type SecureContext } from 'node:tls';
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
  readonly #context: SecureContext;

  constructor(tenant: Hosted) {
    const { caller, trust } = tenant;
    this.#tenant = tenant;
    this.#context = createSecureContext({
      ca: readFileSync(trust.cluster.cert),
      cert: readFileSync(caller.cert),
      key: readFileSync(caller.key),
    });
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
    return this.#ask(port, trust.serverName, false).catch((error: Error) => `refused: ${error.message}`);
  }

  /** @returns the first line from the destination */
  #ask(port: number, servername: string, rejectUnauthorized = true): Promise<string> {
    return new Promise((resolve, reject) => {
      const options = { port, host: '127.0.0.1', servername, secureContext: this.#context, rejectUnauthorized };
      const socket = connect(options, () => {
        socket.write(`CONNECT ${SAME_DESTINATION} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
      });
      let seen = '';
      const settle = (act: () => void) => {
        clearTimeout(timer);
        act();
        socket.destroy();
      };
      const fail = (text: string) => settle(() => reject(new Error(text)));
      const timer = setTimeout(() => fail('no answer in time'), DIAL_DEADLINE);
      socket.setEncoding('latin1').on('data', (chunk: string) => {
        seen += chunk;
        if (!seen.startsWith('HTTP/1.1 200 '.slice(0, seen.length))) return fail(seen.split('\r\n', 1)[0] ?? '');
        const [, greeting = ''] = seen.split('\r\n\r\n', 2);
        if (greeting.endsWith('\n')) settle(() => resolve(greeting.trim()));
      });
      socket.once('error', (error) => fail(error.message)).once('close', () => fail('closed without an answer'));
    });
  }
}
