import { createServer } from 'node:net';

const LOOPBACK = '127.0.0.1';

/** Hands out TCP ports on loopback, each only once. */
export class Ports {
  readonly #taken = new Set<number>();

  /** Returns the wanted port if it is free, otherwise one that the kernel picks. */
  async take(wanted = 0): Promise<number> {
    for (const port of [wanted, 0, 0, 0]) {
      const free = await listenable(port);
      if (free === undefined || this.#taken.has(free)) continue;
      this.#taken.add(free);
      return free;
    }
    throw new Error(`no free TCP port on ${LOOPBACK}`);
  }
}

/** Returns the port that listening on `port` gives (0 is any), or undefined if that fails. */
function listenable(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(address !== null && typeof address === 'object' ? address.port : undefined));
    });
  });
}
