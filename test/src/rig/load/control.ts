import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { within } from '@isthmus/runtime/testing';
import { type Counted, MODES, type Question } from './modes.ts';

/** How long the destination may take to answer a question, in milliseconds. */
const ANSWER_WITHIN = 5000;

/** Asks the destination what it sent and received, on a connection that passes through no plane. */
export class Control {
  readonly #socket: Socket;
  readonly #answers: AsyncIterator<string>;
  #lastId = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.write(Buffer.of(MODES.control));
    this.#answers = createInterface({ input: socket })[Symbol.asyncIterator]();
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

  async ask(question: Question): Promise<Counted> {
    const answer = this.#answers.next();
    this.#socket.write(`${JSON.stringify(question)}\n`);
    const { value } = await within(answer, { deadline: ANSWER_WITHIN, what: 'an answer of the destination' });
    return JSON.parse(value);
  }

  end(): void {
    this.#socket.destroy();
  }
}
