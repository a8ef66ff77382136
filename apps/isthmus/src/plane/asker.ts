import { Agent as HttpAgent, type IncomingMessage, request } from 'node:http';
import { request as requestTls } from 'node:https';
import { adminApi } from '@isthmus/proto/admin';
import { type AskError, type AskLine, AskRounds, linesOf } from '@isthmus/proto/ask';
import { httpsAgent, socketPathOf, wholeOf } from '@isthmus/runtime';
import { ADMIN_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { ISTHMUS } from '../defaults.ts';

/** Certificates and a key, as PEM. */
export interface AdminTls {
  /** Authorities that sign the admin port's certificate. */
  readonly ca: Buffer;
  /** Client certificate, which the admin port asks for. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
}

/** Why a process did not answer. */
export class AskFault extends Error {
  override readonly name = 'AskFault';
  /** `PERMISSION_DENIED` */
  readonly code: string;
  /** In words, without the code. */
  readonly details: string;

  constructor({ code, message }: AskError) {
    super(`${code.toUpperCase()}: ${message}`);
    this.code = code.toUpperCase();
    this.details = message;
  }
}

/** Whom a question is for: a member by its id, the one that is asked if there is none, or an agent. */
export interface Whom {
  readonly member?: string;
  readonly agent?: { readonly tenant: string; readonly id: string };
}

/** A call that is no stream. */
interface Question {
  readonly method: string;
  readonly message: object;
  readonly timeoutMs: number;
}

/** Asks processes of a plane at the admin port of one member. */
export class Asker implements Disposable {
  readonly address: string;
  readonly #agent: HttpAgent;
  readonly #tls: boolean;
  readonly #rounds = new AskRounds<Question>(
    (question, members) => {
      const late = AbortSignal.timeout(question.timeoutMs + ISTHMUS.mergeMs);
      return this.#ask({ ...question, members }, late);
    },
    (error) => new AskFault(error),
  );

  /** @param address `host:port`, or `unix:/path` */
  constructor(address: string, tls?: AdminTls) {
    this.address = address;
    this.#tls = tls !== undefined && socketPathOf(address) === undefined;
    const connections = { keepAlive: true, maxSockets: ISTHMUS.connections };
    this.#agent =
      tls && this.#tls
        ? httpsAgent(tls, [parseDestination(address).host, ADMIN_SERVER_NAME], connections)
        : new HttpAgent(connections);
  }

  /** Returns the admin RPC of one process. @param timeoutMs how long it may take to answer a call that is no stream */
  client(whom: Whom, timeoutMs: number): adminApi.AdminClient {
    const methods = Object.entries(adminApi.AdminDefinition.methods).map(
      ([key, { name, responseStream, responseType }]) => {
        const one = async (message: object, { signal }: { readonly signal?: AbortSignal } = {}) =>
          responseType.fromPartial(
            await this.#one(whom, { method: name, message: jsonOf(message), timeoutMs }, signal),
          );
        const many = (message: object, { signal }: { readonly signal?: AbortSignal } = {}) =>
          this.#many(whom, { method: name, message: jsonOf(message) }, signal, responseType.fromPartial);
        return [key, responseStream ? many : one];
      },
    );
    return Object.fromEntries(methods) as unknown as adminApi.AdminClient;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  #one({ member, agent }: Whom, question: Question, signal?: AbortSignal): Promise<object> {
    if (member === undefined) return this.#first({ ...question, ...(agent ? { agent } : { members: [] }) }, signal);
    const answer = this.#rounds.ask(member, question);
    return signal ? unlessAborted(answer, signal) : answer;
  }

  async #first(question: object, signal?: AbortSignal): Promise<object> {
    for await (const line of this.#ask(question, signal)) return answerOf(line);
    throw new Error('the answer is empty');
  }

  async *#many<T>(
    { member }: Whom,
    question: object,
    signal: AbortSignal | undefined,
    read: (answer: object) => T,
  ): AsyncIterable<T> {
    const members = member === undefined ? [] : [member];
    for await (const line of this.#ask({ ...question, members }, signal)) yield read(answerOf(line));
  }

  async *#ask(question: object, signal?: AbortSignal): AsyncIterable<AskLine> {
    const response = await this.#post(JSON.stringify(question), signal);
    if (response.statusCode !== 200) throw await faultOf(response);
    const tooLong = () => new Error(`an answer is longer than ${ISTHMUS.answerBytes / 1024 / 1024} MiB`);
    const pieces = response.setEncoding('utf8') as AsyncIterable<string>;
    for await (const text of linesOf(pieces, ISTHMUS.answerBytes, tooLong)) yield JSON.parse(text) as AskLine;
  }

  #post(body: string, signal?: AbortSignal): Promise<IncomingMessage> {
    const socketPath = socketPathOf(this.address);
    const place = socketPath === undefined ? parseDestination(this.address) : { host: 'localhost', socketPath };
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    return new Promise((resolve, reject) => {
      const options = {
        ...place,
        path: '/ask',
        method: 'POST',
        agent: this.#agent,
        ...(signal && { signal }),
        // In plain text, the port answers to no name but this one: any other could be that of a page on the web.
        headers: { ...headers, ...(!this.#tls && { host: 'localhost' }) },
      };
      (this.#tls ? requestTls : request)(options, resolve).on('error', reject).end(body);
    });
  }
}

function answerOf({ answer, error }: AskLine): object {
  if (error) throw new AskFault(error);
  return answer ?? {};
}

/** A refusal of the request as a whole. */
async function faultOf(response: IncomingMessage): Promise<Error> {
  const tooLong = () => new Error('the refusal is too long');
  const text = (await wholeOf(response, ISTHMUS.refusalBytes, tooLong)).toString().trim();
  if (/speaks TLS/.test(text)) return new Error('it uses TLS');
  if (response.statusCode === 404) return new Error('it does not answer for its plane: it runs an older version');
  try {
    return new AskFault(JSON.parse(text) as { code: string; message: string });
  } catch {
    return new Error(text === '' ? `HTTP status ${response.statusCode}` : text);
  }
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** In JSON, a message says by the field alone what it is about. */
function jsonOf(message: object): object {
  const fields = Object.entries(message).map(([name, value]) => {
    if (typeof value !== 'object' || value === null) return [name, value];
    return '$case' in value ? [value.$case, (value as { value?: unknown }).value] : [name, value];
  });
  return Object.fromEntries(fields);
}
