import { createServer } from 'node:net';

const LOOPBACK = '127.0.0.1';
/** From one port for a purpose to the next: the ports of a plane differ by less. */
const PORT_STEP = 10;
const MAX_PORT_STEPS = 200;

/** Hands out TCP ports on loopback, each only once. */
export class Ports {
  readonly #taken = new Set<number>();
  readonly #isFree: (port: number) => Promise<boolean>;

  constructor(isFree = canListen) {
    this.#isFree = isFree;
  }

  /**
   * Returns the wanted port if it is free, otherwise the first that is, in steps of ten. Not one that the kernel picks: it may give that to
   * somebody else before the program listens.
   */
  async take(wanted: number): Promise<number> {
    for (let step = 0; step < MAX_PORT_STEPS; step++) {
      const port = wanted + step * PORT_STEP;
      if (this.#taken.has(port) || !(await this.#isFree(port))) continue;
      this.#taken.add(port);
      return port;
    }
    throw new Error(`no free TCP port on ${LOOPBACK} from ${wanted} on`);
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
