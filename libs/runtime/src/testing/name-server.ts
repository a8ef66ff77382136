import dgram, { type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What a server says of a name: its addresses, that there is no such name, that it does not know, or nothing. */
export type Said = readonly string[] | 'missing' | 'unsure' | 'silent';

const A = 1;
const RCODES = { unsure: 2, missing: 3 } as const;
const QUESTION_AT = 12;

/** A DNS server, which answers questions for IPv4 addresses (RFC 1035). */
export class NameServer {
  /** The names that were asked for, once for each question. */
  readonly asked: string[] = [];
  readonly #socket: Socket = dgram.createSocket('udp4');
  readonly #says: (name: string) => Said;

  constructor(says: (name: string) => Said) {
    this.#says = says;
  }

  /** Default: any free port of 127.0.0.1. */
  async listen(address = '127.0.0.1', port = 0): Promise<this> {
    this.#socket.on('message', (question, from) => {
      const answer = this.#answer(question);
      if (answer) this.#socket.send(answer, from.port, from.address);
    });
    this.#socket.bind(port, address);
    await once(this.#socket, 'listening');
    return this;
  }

  get address(): string {
    const { address, port } = this.#socket.address();
    return `${address}:${port}`;
  }

  close(): void {
    this.#socket.close();
  }

  #answer(question: Buffer): Buffer | undefined {
    const labels: string[] = [];
    let at = QUESTION_AT;
    for (let size = question[at] ?? 0; size > 0; size = question[at] ?? 0) {
      labels.push(question.toString('latin1', at + 1, at + 1 + size));
      at += size + 1;
    }
    const type = question.readUInt16BE(at + 1);
    const name = labels.join('.').toLowerCase();
    if (type === A) this.asked.push(name);
    const said = this.#says(name);
    if (said === 'silent') return undefined;
    const head = Buffer.from(question.subarray(0, at + 5));
    // An answer, from a server that recurses; nothing but the question follows.
    head.writeUInt16BE(0x8180 | (typeof said === 'string' ? RCODES[said] : 0), 2);
    head.fill(0, 6, QUESTION_AT);
    const addresses = type === A && typeof said !== 'string' ? said : [];
    head.writeUInt16BE(addresses.length, 6);
    const records = addresses.map((each) => {
      const record = Buffer.from([0xc0, QUESTION_AT, 0, A, 0, 1, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
      record.set(each.split('.').map(Number), 12);
      return record;
    });
    return Buffer.concat([head, ...records]);
  }
}

/** Files as of /etc, by name, in a directory of their own. */
export function etcOf(files: Readonly<Record<string, string>>) {
  const dir = mkdtempSync(join(tmpdir(), 'isth-etc-'));
  const write = (name: string, text: string) => writeFileSync(join(dir, name), text);
  for (const [name, text] of Object.entries(files)) write(name, text);
  return { dir, write, [Symbol.dispose]: () => rmSync(dir, { recursive: true }) };
}
