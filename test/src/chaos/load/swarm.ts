// A caller in its own process that holds many tunnels: it reads them, or never does, or writes without end.
import type { Duplex } from 'node:stream';
import { dial } from './dial.ts';
import type { Door, Protocol } from './door.ts';

export interface SwarmSettings {
  readonly door: Door;
  readonly protocols: readonly Protocol[];
  readonly destination: string;
  readonly tunnels: number;
  readonly does: 'read' | 'stall' | 'write';
}

export interface SwarmReport {
  readonly opened: number;
  /** Tunnels that ended. */
  readonly ended: number;
  /** Bytes read, or written, so far. */
  readonly bytes: number;
  readonly error?: string;
}

const AT_ONCE = 10;
const REPORT_EVERY = 100;
const CHUNK = Buffer.alloc(64 * 1024, 0x69);

class Swarm {
  #opened = 0;
  #ended = 0;
  #bytes = 0;
  #error: string | undefined;

  constructor(settings: SwarmSettings) {
    setInterval(() => this.#report(), REPORT_EVERY);
    void this.#openAll(settings);
  }

  async #openAll(settings: SwarmSettings): Promise<void> {
    const { tunnels, door, protocols, destination, does } = settings;
    let next = 0;
    const open = async () => {
      for (let index = next++; index < tunnels; index = next++) {
        const protocol = protocols[index % protocols.length] as Protocol;
        const { stream } = await dial([door], 0, protocol, destination);
        this.#use(stream, does);
        this.#opened++;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, open)).catch((error: Error) => {
      this.#error = error.message;
    });
  }

  #use(stream: Duplex, does: SwarmSettings['does']): void {
    stream.on('error', () => {});
    stream.once('close', () => {
      this.#ended++;
    });
    stream.write('!');
    if (does === 'stall') return;
    stream.on('data', (chunk: Buffer) => {
      this.#bytes += chunk.length;
    });
    stream.resume();
    if (does === 'write') this.#write(stream);
  }

  #write(stream: Duplex): void {
    const write = () => {
      for (let more = true; more && stream.writable; ) {
        more = stream.write(CHUNK);
        this.#bytes += CHUNK.length;
      }
    };
    stream.on('drain', write);
    write();
  }

  #report(): void {
    const error = this.#error === undefined ? {} : { error: this.#error };
    process.send?.({ opened: this.#opened, ended: this.#ended, bytes: this.#bytes, ...error } satisfies SwarmReport);
  }
}

process.once('message', (settings) => new Swarm(settings as SwarmSettings));
process.once('disconnect', () => process.exit(0));
