import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { ANSWER_BYTES, MODES, QUESTION_BYTES, QUESTIONS } from './modes.ts';

/** How long the destination may take to answer a question, in milliseconds. */
const ANSWER_WITHIN = 5000;

export interface Counted {
  readonly bytes: number;
  readonly corrupt: boolean;
}

/** Asks the destination what it sent and received, on a connection that passes through no plane. */
export class Control {
  readonly #socket: Socket;
  readonly #asked: ((answer: Counted) => void)[] = [];
  #rest = Buffer.alloc(0);
  #lastId = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.write(Buffer.of(MODES.control));
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
  }

  static async connect(port: number): Promise<Control> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    await once(socket, 'connect');
    return new Control(socket);
  }

  /** Returns a new id for a flow. The processes of a run use the same destination one after the other. */
  newId(): number {
    this.#lastId++;
    return ((process.pid & 0xffff) << 15) + this.#lastId;
  }

  count(id: number): Promise<Counted> {
    return this.#ask(QUESTIONS.count, id);
  }

  /** Ends a source cleanly. */
  async stop(id: number): Promise<void> {
    await this.#ask(QUESTIONS.stop, id);
  }

  /** Lets every stalled connection read again. */
  async release(): Promise<void> {
    await this.#ask(QUESTIONS.release, 0);
  }

  end(): void {
    this.#socket.destroy();
  }

  #ask(question: number, id: number): Promise<Counted> {
    const bytes = Buffer.alloc(QUESTION_BYTES);
    bytes[0] = question;
    bytes.writeUInt32BE(id, 1);
    this.#socket.write(bytes);
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error('the destination does not answer')), ANSWER_WITHIN);
      this.#asked.push((answer) => {
        clearTimeout(late);
        resolve(answer);
      });
    });
  }

  #take(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (; this.#rest.length >= ANSWER_BYTES; this.#rest = this.#rest.subarray(ANSWER_BYTES)) {
      const answer = { bytes: Number(this.#rest.readBigUInt64BE(0)), corrupt: this.#rest[8] === 1 };
      this.#asked.shift()?.(answer);
    }
  }
}
