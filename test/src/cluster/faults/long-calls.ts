import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { type Scope, until } from '../../harness/index.ts';
import { kubectl } from '../kubernetes.ts';
import { GROUP, NAMESPACE } from '../probe.ts';
import { Session, SILENT_MS } from '../session.ts';

const EXECS = 3;
/** What an exec that was not cut ends with. kubectl says 0 of one that was. */
const CODE = 7;
/** How many more lines a call prints that is taken to stand: more than may be under way from a pod whose agent is gone. */
const MORE_LINES = 10;
const WATCH = `/apis/${GROUP}/v1/visits?watch=1`;

/** What became of the calls that were to last. */
export interface LongFigures {
  readonly calls: number;
  /** The kinds of those that ended early, lost something, or ended with another status than their command's. */
  readonly cut: readonly string[];
}

interface LongCall {
  readonly kind: string;
  /** Resolves once it stands. */
  begun(): Promise<unknown>;
  /** Whether it has lost nothing, and goes on. */
  whole(): Promise<boolean>;
}

/** Calls that last as long as a fault does: execs, `logs -f` of a fast writer, a port-forward and a watch of an aggregated API. */
export class LongCalls {
  readonly #pod: string;
  /** The execs end once this file is there. */
  readonly #over = `/tmp/over-${randomBytes(4).toString('hex')}`;
  readonly #execs: readonly Session[];
  readonly #calls: readonly LongCall[];

  /** @param apiServers where the execs are, one after the other. Default: where kubectl finds an API server */
  constructor(scope: Scope, pod: string, apiServers: readonly string[] | undefined) {
    this.#pod = pod;
    const script = `i=0; until [ -e ${this.#over} ]; do echo $((i+=1)); sleep 0.5; done; exit ${CODE}`;
    this.#execs = Array.from({ length: EXECS }, (_, index) => {
      const address = apiServers?.[index % apiServers.length];
      const args = ['-n', NAMESPACE, 'exec', pod, '--', 'sh', '-c', script];
      return new Session(scope, address ? [`--server=https://${address}:6443`, ...args] : args);
    });
    this.#calls = [
      ...this.#execs.map((session) => printing('exec', session, /^1$/)),
      logs(new Session(scope, ['-n', NAMESPACE, 'logs', '-f', '--tail=1', 'deployment/writer'])),
      forward(scope, pod),
      printing('watch', new Session(scope, ['get', '--raw', WATCH]), /MODIFIED/),
    ];
  }

  async begun(): Promise<void> {
    await Promise.all(this.#calls.map((call) => call.begun()));
  }

  /** Ends the execs, and says what became of all. */
  async end(): Promise<LongFigures> {
    const whole = await Promise.all(this.#calls.map((call) => call.whole()));
    await kubectl(['-n', NAMESPACE, 'exec', this.#pod, '--', 'touch', this.#over]);
    const codes = await Promise.all(this.#execs.map((session) => session.code()));
    // The execs are the first of the calls.
    const good = whole.map((each, index) => each && (index >= codes.length || codes[index] === CODE));
    return {
      calls: this.#calls.length,
      cut: this.#calls.filter((_, index) => !good[index]).map(({ kind }) => kind),
    };
  }
}

function printing(kind: string, session: Session, first: RegExp): LongCall {
  return { kind, begun: () => session.line(first), whole: () => session.goesOn(MORE_LINES) };
}

/** Its lines are numbered. */
function logs(session: Session): LongCall {
  return {
    ...printing('logs -f', session, /^line \d+ /),
    async whole() {
      const goesOn = await session.goesOn(MORE_LINES);
      const numbers = session.lines.flatMap(
        (line) =>
          line
            .match(/^line (\d+) /)
            ?.slice(1, 2)
            .map(Number) ?? [],
      );
      return goesOn && numbers.every((number, index) => number === (numbers[0] ?? 0) + index);
    },
  };
}

/** One connection through it, on which events come. */
function forward(scope: Scope, pod: string): LongCall {
  const session = new Session(scope, ['-n', NAMESPACE, 'port-forward', pod, ':8080']);
  let events = 0;
  let ended = false;
  return {
    kind: 'port-forward',
    async begun() {
      const [, port] = await session.line(/^Forwarding from 127\.0\.0\.1:(\d+)/);
      const request = get(`http://127.0.0.1:${port}${WATCH}`);
      scope.defer(() => void request.destroy());
      const [answer] = (await once(request, 'response')) as [IncomingMessage];
      const end = () => {
        ended = true;
      };
      for (const each of [request, answer]) each.on('error', end).once('close', end);
      // Each event is a chunk, or several are one.
      answer.on('data', () => {
        events += 1;
      });
    },
    async whole() {
      const more = events + MORE_LINES;
      await until(() => ended || session.ended || events >= more, {
        what: 'more events, or an end',
        deadline: SILENT_MS,
      });
      return !ended && !session.ended;
    },
  };
}
