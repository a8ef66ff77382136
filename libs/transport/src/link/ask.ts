import { type Duplex, Readable } from 'node:stream';
import type { Ask, Question } from '@isthmus/tunnel';
import type { Allowance } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { Lines } from '../http1.ts';
import { controlCost, isRecord } from './control.ts';

export const ASK_PATH = '/ask';

/** Names the member that opens the stream. */
export const MEMBER_FIELD = 'isthmus-member';

/** A side that answers no questions. */
export async function* nothing(): AsyncIterable<never> {}

interface AsksOptions {
  /** What is at the other side, for error texts: `hub h1`. */
  readonly peer: string;
  readonly answer: Ask;
  /** The longest line from the other side, in bytes. */
  readonly lineBytes: number;
  /** The longest line that the other side takes. */
  readonly sendBytes: number;
  /** Of the other side's tenant: a line costs as much as a control message of its length. Unset: the other side is trusted. */
  readonly allowance?: Allowance | undefined;
  /** Called when no question of this side waits any more. */
  readonly idle?: () => void;
}

/**
 * Questions that the two sides of a link ask each other, on one HTTP/2 stream: `POST /ask`. Each line is JSON:
 *
 * - `{"ask": 7, "question": {...}}` asks. Numbers are the asker's own.
 * - `{"of": 7, "answer": ...}` is an answer; `{"of": 7, "end": ""}` says that it was the last. A text says what went wrong.
 * - `{"cancel": 7}`: nobody waits any more.
 */
export class Asks {
  readonly #stream: Duplex;
  readonly #options: AsksOptions;
  readonly #lines: Lines;
  readonly #asked = new Map<number, Readable>();
  readonly #answering = new Map<number, AbortController>();
  #last = 0;
  /** Why the stream was destroyed. */
  #fault: Error | undefined;
  #drained: Promise<void> | undefined;

  constructor(stream: Duplex, options: AsksOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#lines = new Lines(options.lineBytes);
    stream.on('error', (error: Error) => {
      this.#fault = error;
    });
    stream.once('end', () => stream.end());
    stream.on('data', (chunk: Buffer) => this.#read(chunk));
    stream.once('close', () => this.#over());
  }

  /** Asks the other side. */
  ask(question: Question, signal: AbortSignal): AsyncIterable<unknown> {
    const { peer, idle } = this.#options;
    if (this.#stream.destroyed) throw new Error(`${peer} takes no questions`);
    if (this.#asked.size >= TRANSPORT.asks) throw new Error(`${TRANSPORT.asks} questions wait for ${peer}`);
    const id = ++this.#last;
    const answers = new Readable({
      objectMode: true,
      read() {},
      destroy: (error, done) => {
        signal.removeEventListener('abort', abort);
        if (this.#asked.delete(id)) this.#send({ cancel: id });
        if (this.#asked.size === 0) idle?.();
        done(error);
      },
    });
    // Who reads the answers gets it.
    answers.on('error', () => {});
    const abort = () => void answers.destroy(signal.reason as Error);
    this.#asked.set(id, answers);
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    else this.#send({ ask: id, question });
    return answers;
  }

  #over(): void {
    for (const answering of this.#answering.values()) answering.abort();
    const { peer } = this.#options;
    const why = this.#fault?.message ?? 'the link has ended';
    const lost = new Error(why.startsWith(peer) ? why : `${peer}: ${why}`);
    for (const answers of this.#asked.values()) answers.destroy(lost);
  }

  #read(chunk: Buffer): void {
    const short = this.#lines.read(chunk, (line) => {
      const taken = this.#take(line);
      if (!taken) this.#bad();
      return taken;
    });
    if (!short) this.#bad();
  }

  #bad(): void {
    this.#stream.destroy(new Error('it breaks the protocol of questions'));
  }

  /** @returns whether the line can be read */
  #take(line: Buffer): boolean {
    if (this.#options.allowance?.spend(controlCost(line.length)) === false) return false;
    let said: unknown;
    try {
      said = JSON.parse(line.toString());
    } catch {
      return false;
    }
    if (!isRecord(said)) return false;
    const { ask, question, of, answer, end, cancel } = said;
    if (typeof ask === 'number') void this.#serve(ask, question as Question);
    else if (typeof cancel === 'number') this.#answering.get(cancel)?.abort();
    else if (typeof of === 'number') this.#answered(of, answer, end);
    // What is none of these comes from a later version.
    return true;
  }

  #answered(of: number, answer: unknown, end: unknown): void {
    const answers = this.#asked.get(of);
    // It was cancelled a moment ago.
    if (!answers) return;
    if (end === undefined) {
      answers.push(answer ?? {});
      if (answers.readableLength > TRANSPORT.answersUnread)
        answers.destroy(new Error('the answers are read too slowly'));
      return;
    }
    this.#asked.delete(of);
    if (end === '') answers.push(null);
    else answers.destroy(new Error(String(end)));
  }

  async #serve(id: number, question: Question): Promise<void> {
    // Its number would hide the question that has it.
    if (this.#answering.has(id)) {
      this.#bad();
      return;
    }
    const gone = new AbortController();
    let end = '';
    try {
      if (this.#answering.size >= TRANSPORT.asks) throw new Error(`more than ${TRANSPORT.asks} questions at once`);
      this.#answering.set(id, gone);
      for await (const answer of this.#options.answer(question, gone.signal)) {
        if (this.#stream.destroyed) return;
        const line = `{"of":${id},"answer":${JSON.stringify(answer)}}\n`;
        if (Buffer.byteLength(line) > this.#options.sendBytes)
          throw new Error(`the answer is longer than ${this.#options.sendBytes} bytes`);
        if (!this.#stream.write(line)) await this.#drain();
      }
    } catch (error) {
      end = (error as Error).message || 'it failed without a reason';
    } finally {
      this.#answering.delete(id);
    }
    if (!gone.signal.aborted) this.#send({ of: id, end });
  }

  /** Resolves when the stream takes more, or takes nothing any more. */
  #drain(): Promise<void> {
    this.#drained ??= new Promise((resolve) => {
      const settle = () => {
        this.#stream.off('drain', settle).off('close', settle);
        this.#drained = undefined;
        resolve();
      };
      this.#stream.on('drain', settle).on('close', settle);
    });
    return this.#drained;
  }

  #send(message: object): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return;
    this.#stream.write(`${JSON.stringify(message)}\n`);
    // Questions are few. One that asks and reads nothing is no member of ours.
    if (this.#answering.size === 0 && this.#stream.writableLength > TRANSPORT.memberAnswerBytes) this.#bad();
  }
}
