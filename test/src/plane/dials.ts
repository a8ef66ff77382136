import type { Duplex } from 'node:stream';
import { type AdminConnection, adminClient } from '@isthmus/admin/testing/client';
import {
  type Front,
  grpcThrough,
  type Program,
  type Scope,
  tunnelThrough,
  until,
  type Ways,
  within,
} from '../harness/index.ts';
import { PROTOCOLS, type Protocol } from '../rig/dial.ts';

export { PROTOCOLS, type Protocol };

/** Between the end of one dial and the start of the next, in milliseconds. Each dial takes 10 ms of processor time from what is tested. */
const DIAL_EVERY = 50;

const ENDED = 'the tunnel ended';

/** Opens a tunnel as an API server would. Throws an error with the text of the refusal. */
export function dial(scope: Scope, front: Ways, protocol: Protocol, destination: string): Promise<Duplex> {
  if (protocol === 'grpc') return grpcThrough(scope, front.grpc, destination);
  return tunnelThrough(scope, { via: front[protocol], destination });
}

/** Sends a text to an echoing destination, and waits until it is back. */
export async function carries(tunnel: Duplex, text = 'ping'): Promise<void> {
  let seen = '';
  const take = (chunk: Buffer) => {
    seen += chunk;
  };
  tunnel.on('data', take).resume();
  tunnel.write(text);
  await until(() => seen.length >= text.length, {
    what: `echo of ${text}`,
    hopeless: () => (tunnel.destroyed || tunnel.readableEnded ? ENDED : undefined),
  });
  tunnel.off('data', take).pause();
  if (seen !== text) throw new Error(`sent ${text}, and got ${seen}`);
}

/** Resolves when a tunnel has closed, for any reason. */
export async function closed(tunnel: Duplex): Promise<void> {
  tunnel.resume();
  if (tunnel.destroyed || tunnel.readableEnded) return;
  const over = new Promise<void>((resolve) => {
    for (const event of ['end', 'close', 'error']) tunnel.once(event, () => resolve());
  });
  await within(over, { what: 'the end of a tunnel' });
}

/** Dials one after the other until stopped, and collects failures. A tunnel that is cut later is not a failed dial. */
export class Dialler {
  dials = 0;
  readonly failures: Error[] = [];
  readonly #run: Promise<void>;
  #stopped = false;

  constructor(scope: Scope, front: Front, protocol: Protocol, destination: string) {
    this.#run = this.#dialAll(scope, front, protocol, destination);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#run;
  }

  async #dialAll(scope: Scope, front: Front, protocol: Protocol, destination: string): Promise<void> {
    while (!this.#stopped && !scope.signal.aborted) {
      try {
        const tunnel = await dial(scope, front, protocol, destination);
        await carries(tunnel);
        tunnel.destroy();
      } catch (error) {
        if (!(error as Error).message.includes(ENDED)) this.failures.push(error as Error);
      }
      this.dials++;
      await new Promise((resolve) => setTimeout(resolve, DIAL_EVERY));
    }
  }
}

/**
 * Asks each program something. What answers is loaded for the first question: 0.1 s of processor time, in which a program on a busy machine
 * may be silent for so long that it loses its links, and tunnels with them. So a test asks before it opens a tunnel.
 */
export async function askFirst(scope: Scope, programs: readonly Program[]): Promise<void> {
  await Promise.all(programs.map((program) => adminOf(scope, program).listTunnels({})));
}

/** Returns a client of a program's admin RPC. */
export function adminOf(scope: Scope, program: Program): AdminConnection['admin'] {
  const connection = adminClient(`127.0.0.1:${program.adminPort}`);
  scope.defer(() => connection[Symbol.dispose]());
  return connection.admin;
}
