import { Agent as HttpAgent, type IncomingMessage, request } from 'node:http';
import { request as requestTls } from 'node:https';
import { type AskError, type AskLine, linesOf } from '@isthmus/proto/ask';
import { httpsAgent, lookupName, socketPathOf, wholeOf } from '@isthmus/runtime';
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

/** Why a process did not answer, in words. */
export class AskFault extends Error {
  override readonly name = 'AskFault';
  /** `permission_denied` */
  readonly code: string;

  constructor({ code, message }: AskError) {
    super(message);
    this.code = code;
  }
}

/** What a process of a plane is asked: `POST /ask`. */
export interface Question {
  /** `GetStatus` */
  readonly method: string;
  readonly message: object;
  /** Ids. An empty list is the member that is asked. */
  readonly members?: readonly string[];
  readonly agent?: { readonly tenant: string; readonly id: string };
  /** How long each process may take. */
  readonly timeoutMs: number;
}

/** Asks processes of a plane at the admin port of one member. */
export class Asker implements Disposable {
  readonly address: string;
  readonly #agent: HttpAgent;
  readonly #tls: boolean;

  /** @param address `host:port`, or `unix:/path` */
  constructor(address: string, tls?: AdminTls) {
    this.address = address;
    this.#tls = tls !== undefined && socketPathOf(address) === undefined;
    const connections = { keepAlive: true, maxSockets: ISTHMUS.connections };
    this.#agent =
      tls && this.#tls
        ? httpsAgent(tls, [parseDestination(address).host, ADMIN_SERVER_NAME], connections)
        : new HttpAgent({ ...connections, lookup: lookupName });
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }

  /** Yields what each process says, as it comes. */
  async *ask(question: Question, signal: AbortSignal): AsyncIterable<AskLine> {
    const response = await this.#post(JSON.stringify(question), signal);
    if (response.statusCode !== 200) throw await faultOf(response);
    const tooLong = () => new Error(`an answer is longer than ${ISTHMUS.answerBytes / 1024 / 1024} MiB`);
    const pieces = response.setEncoding('utf8') as AsyncIterable<string>;
    for await (const text of linesOf(pieces, ISTHMUS.answerBytes, tooLong)) yield lineIn(text);
  }

  /** What its clock says, in milliseconds since the epoch, to half a second. @throws Error if its answer has no date, as any of a member has */
  async clock(signal: AbortSignal): Promise<number> {
    const response = await this.#post('{}', signal);
    response.destroy();
    const date = Date.parse(response.headers.date ?? '');
    if (Number.isNaN(date)) throw new Error('its answer has no date: is this its admin port?');
    return date + 500;
  }

  #post(body: string, signal: AbortSignal): Promise<IncomingMessage> {
    const socketPath = socketPathOf(this.address);
    const place = socketPath === undefined ? parseDestination(this.address) : { host: 'localhost', socketPath };
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    return new Promise((resolve, reject) => {
      const options = {
        ...place,
        path: '/ask',
        method: 'POST',
        agent: this.#agent,
        signal,
        // In plain text, the port answers to no name but this one: any other could be that of a page on the web.
        headers: { ...headers, ...(!this.#tls && { host: 'localhost' }) },
      };
      (this.#tls ? requestTls : request)(options, resolve).on('error', reject).end(body);
    });
  }
}

/** Any server may answer. @throws AskFault if it refused the request, Error for an answer that no member of a plane gives */
function lineIn(text: string): AskLine {
  const said = fieldsIn(text);
  // A member that fails late refuses the request as a whole, in a line.
  if (isFault(said)) throw new AskFault(said);
  const { id, roles, address, version, zone } = fieldsOf(said.member);
  const known =
    Array.isArray(roles) && [id, address, version, zone, ...roles].every((each) => typeof each === 'string');
  const told = isFault(said.error) || (said.error === undefined && typeof said.answer === 'object' && said.answer);
  // As it is where answers name it: messages have whole characters alone.
  if (known && told)
    return { ...said, member: { id: `${Buffer.from(`${id}`)}`, roles, address, version, zone } } as AskLine;
  throw new Error('what answers is no member of a plane: is this its admin port?');
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  return (typeof value === 'object' && value ? value : {}) as Fields;
}

/** Of what is no JSON: none. */
function fieldsIn(text: string): Fields {
  try {
    return fieldsOf(JSON.parse(text));
  } catch {
    return {};
  }
}

function isFault(value: unknown): value is AskError {
  const { code, message } = fieldsOf(value);
  return typeof code === 'string' && typeof message === 'string';
}

/** A refusal of the request as a whole. */
async function faultOf(response: IncomingMessage): Promise<Error> {
  const tooLong = () => new Error('the refusal is too long');
  const text = (await wholeOf(response, ISTHMUS.refusalBytes, tooLong)).toString().trim();
  if (/speaks TLS/.test(text)) return new Error('it uses TLS');
  if (response.statusCode === 404)
    return new Error('it does not answer for its plane: this is no admin port, or one of an older version');
  const said = fieldsIn(text);
  if (isFault(said)) return new AskFault(said);
  return new Error(text === '' ? `HTTP status ${response.statusCode}` : text);
}
